// One file for the browser: the screens around jobs.
export { Job } from "./job";
export { Jobs } from "./jobs";
export { Queue } from "./queue";
