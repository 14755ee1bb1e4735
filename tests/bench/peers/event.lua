-- wrk's side of a measurement. The request's template is in the file that BENCH_TEMPLATE names: its head, an empty line, its body.
-- Each request is another event: a number stands where the template has ############, and @@@ is one of BENCH_SESSIONS numbers.
local file = assert(io.open(os.getenv("BENCH_TEMPLATE"), "rb"))
local template = file:read("*a")
file:close()
local sessions = tonumber(os.getenv("BENCH_SESSIONS"))
local number = tonumber(os.getenv("BENCH_FIRST"))
local parts, places = {}, {}
local from = 1
while true do
  local a = template:find("############", from, true)
  local b = template:find("@@@", from, true)
  local at = a and b and math.min(a, b) or a or b
  if not at then break end
  parts[#parts + 1] = template:sub(from, at - 1)
  parts[#parts + 1] = ""
  places[#places + 1] = { #parts, at == a }
  from = at + (at == a and 12 or 3)
end
parts[#parts + 1] = template:sub(from)

function request()
  number = number + 1
  local session = string.format("%03d", number % sessions)
  local name = string.format("%012d", number)
  for _, place in ipairs(places) do parts[place[1]] = place[2] and name or session end
  return table.concat(parts)
end

function done(summary, latency, requests)
  local errors = summary.errors
  print(string.format(
    'RESULT {"events":%d,"seconds":%f,"p50_ms":%f,"p99_ms":%f,"errors":%d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
