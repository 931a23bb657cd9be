import type { OpsExplanationAnswer, OpsJobAnswer } from "../../api.gen";
import { useAnswer } from "../../parts/asking";
import { useFresh } from "../../parts/fresh";
import { Explained } from "../../parts/why";

/** Why the job does not run, or what it does instead. */
export function Why({ job }: { job: OpsJobAnswer }) {
  const asked = useAnswer<OpsExplanationAnswer>(`/jobs/${encodeURIComponent(job.id)}/explanation`);
  useFresh(asked.again, 5000);
  return asked.answer === undefined ? null : <Explained why={asked.answer} />;
}
