-- wrk prints rounded figures for people; this prints the exact ones on one line for benchmarks/generator.py.
-- Only done() is defined: a request() or response() would cost wrk time for each request.
function done(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format(
      'RESULT {"requests": %d, "microseconds": %d, "p50": %d, "p90": %d, "p99": %d, "max": %d, ' ..
      '"bad_status": %d, "connect": %d, "read": %d, "write": %d, "timeout": %d}\n',
      summary.requests, summary.duration,
      latency:percentile(50), latency:percentile(90), latency:percentile(99), latency.max,
      errors.status, errors.connect, errors.read, errors.write, errors.timeout))
end
