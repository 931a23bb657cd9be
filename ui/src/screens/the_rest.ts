// One file for the browser: what failed, what will run, who runs it, how long it takes, and who did what.
export { Audit } from "./audit";
export { FailureGroup } from "./failures/group";
export { Failures } from "./failures";
export { Instances } from "./instances";
export { Latency } from "./latency";
export { OneInstance } from "./instances/one";
export { OneSchedule } from "./schedules/one";
export { Schedules } from "./schedules";
