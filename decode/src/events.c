/* SPDX-License-Identifier: MIT */
/*
 * What each event says: `ip` is where it took effect, `target` where execution went on, `detail` its payload.
 * Pure functions.
 */
#include "events.h"

static void set_ip(struct ptd_event_row *row, const struct pt_event *event, uint64_t ip)
{
    row->has_ip = !event->ip_suppressed;
    row->ip = ip;
}

static void set_target(struct ptd_event_row *row, bool known, uint64_t target)
{
    row->has_target = known;
    row->target = target;
}

static void set_detail(struct ptd_event_row *row, uint64_t detail)
{
    row->has_detail = true;
    row->detail = (int64_t)detail;
}

static void power_row(struct ptd_event_row *row, const struct pt_event *event)
{
    switch (event->type) {
    case ptev_exstop:
        row->kind = PTD_EV_EXSTOP;
        set_ip(row, event, event->variant.exstop.ip);
        break;
    case ptev_mwait: /* extensions (ecx) above hints (eax) */
        row->kind = PTD_EV_MWAIT;
        set_ip(row, event, event->variant.mwait.ip);
        set_detail(row, (uint64_t)event->variant.mwait.ext << 32 | event->variant.mwait.hints);
        break;
    case ptev_pwre: /* bit 16: by hardware; C-state above sub C-state */
        row->kind = PTD_EV_PWRE;
        set_detail(row, (uint64_t)event->variant.pwre.hw << 16 | (uint64_t)event->variant.pwre.state << 8 |
                            event->variant.pwre.sub_state);
        break;
    default: /* bits 16, 17, 18: interrupt, store, autonomous; last above deepest C-state */
        row->kind = PTD_EV_PWRX;
        set_detail(row, (uint64_t)event->variant.pwrx.autonomous << 18 | (uint64_t)event->variant.pwrx.store << 17 |
                            (uint64_t)event->variant.pwrx.interrupt << 16 |
                            (uint64_t)event->variant.pwrx.last << 8 | event->variant.pwrx.deepest);
        break;
    }
}

static void state_row(struct ptd_event_row *row, const struct pt_event *event)
{
    switch (event->type) {
    case ptev_paging: /* bit 0: VMX non-root */
        row->kind = PTD_EV_PAGING;
        set_detail(row, event->variant.paging.cr3 | event->variant.paging.non_root);
        break;
    case ptev_async_paging:
        row->kind = PTD_EV_ASYNC_PAGING;
        set_ip(row, event, event->variant.async_paging.ip);
        set_detail(row, event->variant.async_paging.cr3 | event->variant.async_paging.non_root);
        break;
    case ptev_vmcs:
        row->kind = PTD_EV_VMCS;
        set_detail(row, event->variant.vmcs.base);
        break;
    case ptev_async_vmcs:
        row->kind = PTD_EV_ASYNC_VMCS;
        set_ip(row, event, event->variant.async_vmcs.ip);
        set_detail(row, event->variant.async_vmcs.base);
        break;
    case ptev_exec_mode: /* in bits: 16, 32, 64; 0 unknown */
        row->kind = PTD_EV_EXEC_MODE;
        set_ip(row, event, event->variant.exec_mode.ip);
        set_detail(row, event->variant.exec_mode.mode == ptem_unknown ? 0 : 8u << event->variant.exec_mode.mode);
        break;
    default: /* bit 0: speculative, bit 1: aborted */
        row->kind = PTD_EV_TSX;
        set_ip(row, event, event->variant.tsx.ip);
        set_detail(row, (uint64_t)event->variant.tsx.aborted << 1 | event->variant.tsx.speculative);
        break;
    }
}

struct ptd_event_row ptd_event_row(const struct pt_event *event)
{
    struct ptd_event_row row = {
        .kind = PTD_EV_UNKNOWN,
        .update = event->status_update,
        .lost_mtc = event->lost_mtc,
        .lost_cyc = event->lost_cyc,
    };
    bool known = !event->ip_suppressed;
    switch (event->type) {
    case ptev_enabled:
        row.kind = PTD_EV_ENABLED;
        set_ip(&row, event, event->variant.enabled.ip);
        set_target(&row, known, event->variant.enabled.ip);
        if (event->variant.enabled.resumed)
            set_detail(&row, 1);
        break;
    case ptev_disabled: /* by the branch just before it */
        row.kind = PTD_EV_DISABLED;
        set_target(&row, known, event->variant.disabled.ip);
        break;
    case ptev_async_disabled:
        row.kind = PTD_EV_ASYNC_DISABLED;
        row.has_ip = true;
        row.ip = event->variant.async_disabled.at;
        set_target(&row, known, event->variant.async_disabled.ip);
        break;
    case ptev_async_branch:
        row.kind = PTD_EV_ASYNC_BRANCH;
        row.has_ip = true;
        row.ip = event->variant.async_branch.from;
        set_target(&row, known, event->variant.async_branch.to);
        break;
    case ptev_overflow:
        row.kind = PTD_EV_OVERFLOW;
        set_target(&row, known, event->variant.overflow.ip);
        break;
    case ptev_stop:
        row.kind = PTD_EV_STOP;
        break;
    case ptev_ptwrite:
        row.kind = PTD_EV_PTWRITE;
        set_ip(&row, event, event->variant.ptwrite.ip);
        set_detail(&row, event->variant.ptwrite.payload);
        row.size = (int8_t)event->variant.ptwrite.size;
        break;
    case ptev_tick:
        row.kind = PTD_EV_TICK;
        set_ip(&row, event, event->variant.tick.ip);
        break;
    case ptev_cbr:
        row.kind = PTD_EV_CBR;
        set_detail(&row, event->variant.cbr.ratio);
        break;
    case ptev_mnt:
        row.kind = PTD_EV_MNT;
        set_detail(&row, event->variant.mnt.payload);
        break;
    case ptev_exstop:
    case ptev_mwait:
    case ptev_pwre:
    case ptev_pwrx:
        power_row(&row, event);
        break;
    case ptev_paging:
    case ptev_async_paging:
    case ptev_vmcs:
    case ptev_async_vmcs:
    case ptev_exec_mode:
    case ptev_tsx:
        state_row(&row, event);
        break;
    }
    return row;
}
