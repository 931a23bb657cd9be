"""Why a job does not run: the rules, one by one, as pure functions of the job and of the facts around it."""
