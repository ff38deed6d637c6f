-- Requests for wrk: every body differs (the first line's time counts up), so that no request is a
-- repeat that the server could answer from memory. Bodies are shaped like the SDK's: 10 names a line.
-- Environment: KEY, POINTS (a request), NAMES (a line).
local key = os.getenv("KEY")
local points = tonumber(os.getenv("POINTS"))
local names = math.min(points, tonumber(os.getenv("NAMES") or "10"))
local lines = math.floor(points / names)

local counter = 0
local thread_number = 0
local threads = 0

function setup(thread)
  thread:set("thread_number", threads)
  threads = threads + 1
end

local function data(line)
  local pairs_ = {}
  for name = 1, names do
    pairs_[name] = string.format('"train/metric_%d": %.15g', name, math.sin(line * 0.7 + name) * name)
  end
  return "{" .. table.concat(pairs_, ", ") .. "}"
end

local first_tail, rest, head, run_lines

function init(args)
  first_tail = ', "step": 0, "data": ' .. data(0) .. "}\n"
  run_lines = {}
  for line = 1, lines - 1 do
    run_lines[line] = string.format('{"time": %d, "step": %d, "data": %s}\n', 1764423221123 + line, line, data(line))
  end
  rest = table.concat(run_lines)
  head = {
    ["Authorization"] = "Bearer " .. key,
    ["X-Project-Name"] = "bench",
    ["X-Run-Id"] = "1",
    ["Content-Type"] = "application/x-ndjson",
  }
end

function request()
  counter = counter + 1
  -- Threads count far apart, all within the years that are accepted.
  local time = 1000000000000 + thread_number * 1000000000 + counter
  return wrk.format("POST", "/ingest/metrics", head, '{"time": ' .. string.format("%d", time) .. first_tail .. rest)
end

function done(summary, latency, requests)
  io.write(string.format(
    'JSON {"requests": %d, "duration_us": %d, "errors": %d, "p50_us": %d, "p95_us": %d, "p99_us": %d}\n',
    summary.requests, summary.duration,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status + summary.errors.timeout,
    latency:percentile(50), latency:percentile(95), latency:percentile(99)))
end
