// Formats numbers and times with their units.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const none = '–';

const missing = (n) => n === null || n === undefined || Number.isNaN(n);

// three formats a number below 1,000 with three digits.
function three(n) {
  if (n === 0) return '0';
  if (n >= 99.95) return whole.format(n);
  if (n >= 9.995) return n.toFixed(1);
  return n >= 0.01 ? n.toFixed(2) : '< 0.01';
}

/** count formats a whole number. */
export const count = (n) => (missing(n) ? none : whole.format(n));

/** rate formats a number per second. */
export const rate = (n, unit = '') => (missing(n) ? none : `${three(n)}${unit && ` ${unit}`}/s`);

const sizes = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** bytes formats a size. */
export function bytes(n) {
  if (missing(n)) return none;
  let i = 0;
  for (; n >= 1000 && i < sizes.length - 1; i++) n /= 1024;
  return `${i === 0 ? whole.format(n) : three(n)} ${sizes[i]}`;
}

/** byteRate formats a size per second. */
export const byteRate = (n) => (missing(n) ? none : `${bytes(n)}/s`);

/** percent formats a share from 0 to 1. */
export function percent(share) {
  if (missing(share)) return none;
  const n = share * 100;
  if (n > 0 && n < 0.1) return '< 0.1 %';
  return `${n > 99.9 && n < 100 ? '99.9' : n.toFixed(n < 10 && n > 0 ? 1 : 0)} %`;
}

/** seconds formats a duration in its two largest units. */
export function seconds(n) {
  if (missing(n)) return none;
  if (n < 0.0005) return '0 s';
  if (n < 1) return `${three(n * 1000)} ms`;
  if (n < 10) return `${n.toFixed(1)} s`;
  if (n < 60) return `${Math.floor(n)} s`;
  for (const [size, unit, part, small] of [[86400, 'd', 3600, 'h'], [3600, 'h', 60, 'min'], [60, 'min', 1, 's']]) {
    if (n < size) continue;
    const rest = Math.floor((n % size) / part);
    return rest ? `${Math.floor(n / size)} ${unit} ${rest} ${small}` : `${Math.floor(n / size)} ${unit}`;
  }
  return none;
}

const pad = (n) => String(n).padStart(2, '0');

/** time formats a time in the browser's time zone. */
export function time(text) {
  const at = new Date(text);
  if (!text || Number.isNaN(at.getTime()) || at.getTime() <= 0) return none;
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${clock(at)}`;
}

/** clock formats the time of day. */
export const clock = (at) => `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;

/** plural formats a count with its noun. */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;
