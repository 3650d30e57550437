// SPDX-License-Identifier: MIT
// Starts what is there.

const graph = data.graph && byId("graph-part") ? new Graph(data.graph) : null;
const openThunk = (thread, thunk) => {
  if (!graph) return;
  graph.find(`${thread}.${thunk}`);
  byId("graph").scrollIntoView();
};
if (data.timeline && byId("timeline-part")) new Timeline(data.timeline, data.threads, openThunk).command();
if (data.flame && byId("flame-part")) new Flame(data.flame);
if (data.source && byId("source-part")) new Source(data.source);
document.documentElement.dataset.ready = "true";
