"""The state machine: every way a job can change, as a named value.

A transition says which documents it applies to (`when`), what it does to them (`then`) and where it
leads (`to`). Nothing here talks to a database: claiming, settling, recovering and operations perform them.

    pending ──claim──► processing ──complete──► completed
       ▲                 │  │  ├────fail──────► failed ─────┐
       ├─retry, release──┤  │  └──cancel_run,─► cancelled ──┤
       ├─snooze, repeat──┤  │     expire            ▲       │
       ├─run_again───────┘  │                       │       │
       ├─recover (stale) ───┘     cancel, cancel_stale      │
       └────────────retried by an operator ◄────────────────┘

The transitions stand in five files, by who acts:

    File         Who acts                         Transitions
    run          the owner of a claim             claim, heartbeat, complete, retry, fail, release, snooze,
                                                  cancel_run, expire
    occurrences  the owner of a schedule's claim  repeat, give_up_occurrence, end_schedule, skip, spawn, park
    calls        a later call with the same key   replace_waiting, note_again, run_again
    recovery     any instance, if the owner died  recover, cancel_stale, give_up_crashed, run_again_crashed,
                                                  abandon_occurrence, abandon_schedule
    operators    people                           cancel, request_cancel, end_after_run, retry_by_operator,
                                                  set_priority, reschedule_by_operator, run_now_by_operator,
                                                  change_schedule, pause_schedule, trigger_schedule,
                                                  count_extra_job

They share `transition`, the value; `ownership`, whether a claim still holds its job; and `parts`, the fields,
conditions and expressions that updates are made of.

`cancel` leads from pending to cancelled, `cancel_stale` from a dead owner. `request_cancel` leaves a job in
processing: it asks the owner to stop the run. `replace_waiting` gives a pending job the payload of a later
call with the same key; `note_again` notes such a call in a running job, which then does not end before it has
run once more (`run_again`).

A schedule goes back to pending after each run (`repeat`), and also without a run: `skip`, `spawn`, `park`.
`end_schedule` completes it. `pause_schedule`, `trigger_schedule` and `change_schedule` leave it where it is.

The server writes the stamps (`$currentDate`, `$$NOW`), so that no client's clock can skew them. Only the
stamps of a run (`startedAt`, `finishedAt`) come from the client's reading of the server's clock. Text from
users stands in `$literal` inside a pipeline: a leading `$` would make a bare string an expression.
"""
