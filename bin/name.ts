import { DisplayName, fits } from '../src/kernel/schemas.js';
import { mustBe } from '../src/kernel/validation-messages.js';
import { type Call, type Command, UsageError } from './command.js';

/** The display name. @throws UsageError where it is blank or could be read as something else */
export function nameIn(call: Call, command: Command): { name?: string } {
  const name = call.text('name');
  if (name === undefined) return {};
  if (!fits(name, DisplayName)) throw new UsageError(`--name ${mustBe(DisplayName, name)}.`, command);
  return { name };
}
