"""The state machine: every way a job can change, as a named value.

A transition says which documents it applies to (`when`), what it does to them (`then`) and where it
leads (`to`). Nothing here talks to a database: claiming, settling, recovering and operations perform them.

    pending ──claim──► processing ──complete──► completed
       ▲                 │  │  ├────fail──────► failed ─────┐
       ├─retry, release──┤  │  └──cancel_run,─► cancelled ──┤
       ├─snooze, repeat──┤  │     expire            ▲       │
       ├─suspend─────────┤  │                       │       │
       ├─run_again───────┘  │                       │       │
       ├─recover (stale) ───┘     cancel, cancel_stale      │
       └────────────retried by an operator ◄────────────────┘

The transitions stand in eight files, by who acts. The drawing at the top of each names all of its own:

    run          the owner of a claim
    flows        the owner of a claim, whose handler does durable steps
    occurrences  the owner of a schedule's claim
    calls        a later call with the same key
    recovery     any instance, if the owner died
    operators    people
    signals      whoever signals a job, and the run that receives the signal
    batches      whoever sees that a batch is over
    lines        the owner of a claim that finds no free turn, and whoever frees one

They share `transition`: the value, whether a claim still holds its job, and the fields, conditions and
expressions that updates are made of.

`cancel` leads from pending to cancelled, `cancel_stale` from a dead owner. `request_cancel` leaves a job in
processing: it asks the owner to stop the run. `replace_waiting` gives a pending job the payload of a later
call with the same key; `note_again` notes such a call in a running job, which then does not end before it has
run once more (`run_again`).

`park_in_line` puts a job back until it gets a turn in the line of its key, which `expose` gives it.

`record_steps` leaves a job in processing, with what its handler has done. `suspend` puts it back until a
time or a signal, or until a batch is over. `wake_batch` ends such a wait,
and `cancel_after_batch` ends the job with it.

A schedule goes back to pending after each run (`repeat`), and also without a run: `skip`, `spawn`, `park`.
`end_schedule` completes it. `pause_schedule`, `trigger_schedule` and `change_schedule` leave it where it is.

The server writes the stamps (`$currentDate`, `$$NOW`), so that no client's clock can skew them. Only the
stamps of a run (`startedAt`, `finishedAt`) come from the client's reading of the server's clock. Text from
users stands in `$literal` inside a pipeline: a leading `$` would make a bare string an expression.
"""
