"""A worker process with tracing: every finished span is printed as one line of JSON."""

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from monque import Job, Monque

provider = TracerProvider()
exporter = ConsoleSpanExporter(formatter=lambda span: f"span {span.to_json(indent=None)}\n")
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)

monque = Monque()


@monque.worker("greet")
async def greet(job: Job[str]) -> None:
    with trace.get_tracer("shop").start_as_current_span("inside"):
        pass
