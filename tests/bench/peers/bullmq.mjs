// BullMQ's side of a measurement: `node bullmq.mjs add|drain PORT TEMPLATE CONNECTIONS SECONDS EVENTS`.
// Prints one line of JSON: events, seconds, cpu_seconds of this process, and the percentiles of the calls.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
const require = createRequire(process.env.BENCH_NODE_MODULES + "/");
const { Queue, Worker } = require("bullmq");

const [mode, port, template, connections, seconds, events] = process.argv.slice(2);
const [before, after] = readFileSync(template, "utf8").split("############");
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null };
const queue = new Queue("bench", { connection });
let number = Date.now();
const job = () => ({ payload: JSON.parse(before + String(number++).padStart(12, "0") + after) });

const result = mode === "add" ? await add() : await drain();
console.log(JSON.stringify(result));
process.exit(0);

async function add() {
  await queue.waitUntilReady();
  await queue.add("event", job());
  const cpu = process.cpuUsage();
  const began = performance.now();
  const until = began + Number(seconds) * 1000;
  const taken = [];
  await Promise.all(Array.from({ length: Number(connections) }, async () => {
    while (performance.now() < until && taken.length < Number(events)) {
      const from = performance.now();
      await queue.add("event", job());
      taken.push(performance.now() - from);
    }
  }));
  return { ...measured(cpu, began, taken.length), ...percentiles(taken) };
}

async function drain() {
  await queue.obliterate({ force: true });
  for (let left = Number(events); left > 0; left -= 100) {
    await queue.addBulk(Array.from({ length: Math.min(100, left) }, () => ({ name: "event", data: job() })));
  }
  console.log("FILLED"); // whoever started this reads Redis' CPU time now, and then says so
  await new Promise((resolve) => process.stdin.once("data", resolve));
  const cpu = process.cpuUsage();
  const began = performance.now();
  let done = 0;
  await new Promise((resolve) => {
    const worker = new Worker("bench", async () => {}, { connection, concurrency: Number(connections) });
    worker.on("completed", () => { done += 1; if (done === Number(events)) resolve(); });
  });
  return measured(cpu, began, done);
}

function measured(cpu, began, count) {
  const used = process.cpuUsage(cpu);
  return { events: count, seconds: (performance.now() - began) / 1000, cpu_seconds: (used.user + used.system) / 1e6 };
}

function percentiles(taken) {
  taken.sort((a, b) => a - b);
  const at = (percent) => taken[Math.max(0, Math.ceil(taken.length * percent / 100) - 1)];
  return { p50_ms: at(50), p99_ms: at(99) };
}
