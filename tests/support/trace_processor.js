// SPDX-License-Identifier: MIT
// Perfetto's trace processor as a filter: node trace_processor.js FOLDER < requests > replies, both of them streams of
// TraceProcessorRpc. FOLDER holds engine_bundle.js and the .wasm files of ui.perfetto.dev. The bundle is written for a
// worker of a browser; what it needs of one is here.
"use strict";
const fs = require("fs"), path = require("path");

const folder = process.argv[2];
const read = (url) => fs.readFileSync(path.join(folder, path.basename(url)));
const requests = new Uint8Array(fs.readFileSync(0));
const replies = [];
const port = {postMessage: (reply) => replies.push(Buffer.from(reply))};
const worker = {location: {href: "http://localhost/engine_bundle.js"}};
const quiet = {log: () => {}, warn: () => {}, error: console.error};
const fetched = async (url) => new Response(read(url), {headers: {"content-type": "application/wasm"}});

class FileRequest {
  open(_method, url) { this.url = url; }
  send() { this.response = new Uint8Array(read(this.url)).buffer; }
}

function serve() {
  worker.onmessage({data: port});
  port.onmessage({data: requests});
  fs.writeFileSync(1, Buffer.concat(replies));
  process.exit(0);
}

// the callback for replies is added to the module when it is ready: only then are requests answered
const add = WebAssembly.Table.prototype.set;
WebAssembly.Table.prototype.set = function (...given) {
  add.apply(this, given);
  setImmediate(serve);
};
new Function("self", "WorkerGlobalScope", "XMLHttpRequest", "process", "fetch", "console", "location",
  read("engine_bundle.js").toString("utf8"))(
  worker, function () {}, FileRequest, undefined, fetched, quiet, worker.location);
