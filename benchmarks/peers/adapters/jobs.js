// The four jobs every peer runs, and what they leave behind: the same as jobs.py, for Node.
"use strict";
const fs = require("node:fs");

const ATTEMPTS = 3;
const NAP_MS = 5;
const FLUSH_MS = 20;
const PAUSE_NS = 100_000_000n; // the first execution after such a pause is told at once, so that the pause can be measured
const STARTED = 0;
const FINISHED = 1;

let file = -1;
function opened() {
  if (file < 0) file = fs.openSync(process.env.BENCH_RECORDS, "a");
  return file;
}

// Executions are only counted here: a write for each would be a part of what is measured. A timer hands the sums on.
const expected = Number(process.env.BENCH_EXPECT || "0");
const sums = Buffer.alloc(40);
let count = 0;
let total = 0;
let told = 0;
let first = 0n;
let last = 0n;

function tell() {
  told = count;
  [BigInt(process.pid), BigInt(count), BigInt(total), first, last].forEach((value, index) => sums.writeBigUInt64LE(value, 8 * index));
  fs.writeSync(opened(), sums);
}

function note(number) {
  const now = process.hrtime.bigint();
  const paused = now - last > PAUSE_NS;
  last = now;
  if (count === 0) {
    first = now;
    setInterval(() => count !== told && tell(), FLUSH_MS).unref();
  }
  count += 1;
  total += number;
  if (paused || count === expected) tell();
}

// One write of so few bytes to the end of a file is whole or not there.
function trace(number, what) {
  const record = Buffer.alloc(16);
  record.writeUInt32LE(number, 0);
  record.writeUInt32LE(what, 4);
  record.writeBigUInt64LE(process.hrtime.bigint(), 8);
  fs.writeSync(opened(), record);
}

exports.noop = note;

exports.storm = (number, attempt) => {
  note(number);
  if (attempt < ATTEMPTS) throw new Error("try again");
};

exports.probe = (number) => trace(number, STARTED);

exports.mortal = async (number) => {
  trace(number, STARTED);
  await new Promise((resolve) => setTimeout(resolve, NAP_MS));
  trace(number, FINISHED);
};

exports.ATTEMPTS = ATTEMPTS;
