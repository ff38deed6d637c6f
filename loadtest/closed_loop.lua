-- Requests for wrk: every line of every body has a time of its own, so that no request is a repeat
-- that the server could answer from memory, and no row is one that a merge would collapse. Bodies are shaped like the SDK's: 10 names a line.
-- Environment: KEY, POINTS (a request), NAMES (a line), START (no two runs on a server share one),
-- FORMAT (ndjson, or influx: the same points as InfluxDB's line protocol), BASE (time in ms).
local key = os.getenv("KEY")
local is_influx = os.getenv("FORMAT") == "influx"
local base = tonumber(os.getenv("BASE") or "1000000000000")
local points = tonumber(os.getenv("POINTS"))
local names = math.min(points, tonumber(os.getenv("NAMES") or "10"))
local lines = math.floor(points / names)

local counter = tonumber(os.getenv("START"))
local thread_number = 0
local threads = 0

function setup(thread)
  thread:set("thread_number", threads)
  threads = threads + 1
end

local function data(line)
  local pairs_ = {}
  local spelling = is_influx and "metric_%d=%.15g" or '"train/metric_%d": %.15g'
  for name = 1, names do
    pairs_[name] = string.format(spelling, name, math.sin(line * 0.7 + name) * name)
  end
  return table.concat(pairs_, is_influx and "," or ", ")
end

local tails, head

function init(args)
  tails = {}
  for line = 1, lines do
    if is_influx then
      tails[line] = "train,run=1 " .. data(line) .. " "
    else
      tails[line] = string.format(', "step": %d, "data": {%s}}\n', line, data(line))
    end
  end
  if is_influx then
    head = {}
    return
  end
  head = {
    ["Authorization"] = "Bearer " .. key,
    ["X-Project-Name"] = "bench",
    ["X-Run-Id"] = "1000000001",
    ["Content-Type"] = "application/x-ndjson",
  }
end

function request()
  -- Threads and runs count far apart, all within the years that are accepted.
  local time = base + thread_number * 1000000000000 + counter * lines
  counter = counter + 1
  local pieces = {}
  if is_influx then
    for line = 1, lines do
      pieces[2 * line - 1] = tails[line]
      pieces[2 * line] = string.format("%d\n", time + line)
    end
    return wrk.format("POST", "/write?precision=ms", head, table.concat(pieces))
  end
  for line = 1, lines do
    pieces[2 * line - 1] = string.format('{"time": %d', time + line)
    pieces[2 * line] = tails[line]
  end
  return wrk.format("POST", "/ingest/metrics", head, table.concat(pieces))
end

function done(summary, latency, requests)
  io.write(string.format(
    'JSON {"requests": %d, "duration_us": %d, "errors": %d, "p50_us": %d, "p95_us": %d, "p99_us": %d}\n',
    summary.requests, summary.duration,
    summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status + summary.errors.timeout,
    latency:percentile(50), latency:percentile(95), latency:percentile(99)))
end
