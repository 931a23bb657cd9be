import { JobList } from "./jobs/joblist";
import { Views } from "./jobs/views";
import "./jobs/jobs.css";

export function Jobs() {
  return (
    <section>
      <JobList title={<h1>Jobs</h1>} actions={<Views />} />
    </section>
  );
}
