import t from 'tap';
import { toTimestamp } from '../../../src/core/http/schemas.js';

t.test('a timestamp is written as Date does it', async (t) => {
  const day = 86_400_000;
  const times = [0, 1, 999, 1000, 59_999, 60_000, 3_599_999, 3_600_000, day - 1, day, 951_782_400_000];
  const years = Array.from({ length: 3000 }, (_, index) => index * 97_777_777_777);
  const lateYears = [253_402_300_799_999, 253_402_300_800_000, 8_640_000_000_000_000];
  for (const time of [...times, ...years, ...lateYears, -1, -day]) {
    if (toTimestamp(time) !== new Date(time).toISOString()) t.fail(`${time} is ${toTimestamp(time)}`);
  }
  t.throws(() => toTimestamp(8_640_000_000_000_001), RangeError);
  t.throws(() => toTimestamp(Number.NaN), RangeError);
});
