// The page of the errors: a heading for each code, with cause and remedy. docs/generate.mjs calls it.
import { renderOAuth } from '../dist/src/core/kernel/errors.js';
import { REMEDIES } from './error-remedies.mjs';
import { escapeHtml, table } from './table.mjs';

/** The first words of sentences that say what to do. */
const IMPERATIVES =
  /^(?:Add|API clients must|Ask|Begin|Change|Choose|Confirm|Contact|Continue|Correct|Create|Deliver|Disconnect|Enable|End|Enter|Leave|Look|Make|Name|Open|Refresh|Reload|Remove|Repeat|Request|Resync|Send|Set|Sign|Start|Try|Use|Wait)\b/;

/** The sentences of a message: what happened, and what to do. */
function partsOf(message) {
  const sentences = message.split(/(?<=\.) (?=[A-Z])/);
  const remedy = sentences.filter((sentence) => IMPERATIVES.test(sentence));
  const cause = sentences.filter((sentence) => !remedy.includes(sentence));
  return { cause: cause.join(' '), remedy: remedy.join(' ') };
}

const inOAuth = (error) => JSON.parse(renderOAuth(error).body).error;

const byCode = (one, other) => (one.code < other.code ? -1 : one.code > other.code ? 1 : 0);

/** One entry for each code: the domains of a product may answer with the same error, or with the same code and another message. */
function entriesOf(errors) {
  const entries = new Map();
  for (const error of errors.toSorted(byCode)) {
    const entry = entries.get(error.code) ?? {
      code: error.code,
      statuses: new Set(),
      messages: new Set(),
      error,
    };
    entry.statuses.add(error.statusCode);
    entry.messages.add(error.message);
    entries.set(error.code, entry);
  }
  return [...entries.values()];
}

const used = new Set();

function section({ code, statuses, messages, error }, { heading = code, isShared = false } = {}) {
  const parts = [...messages].map(partsOf);
  const causes = parts.map(({ cause, remedy }) => cause || remedy);
  const own = [...new Set(parts.map(({ cause, remedy }) => (cause ? remedy : '')).filter(Boolean))];
  const remedy = REMEDIES[code] ?? own.join(' ');
  if (REMEDIES[code]) used.add(code);
  // A message such as "Sign in first." is cause and remedy.
  if (!remedy && parts.some(({ cause }) => cause)) throw new Error(`docs/error-remedies.mjs lacks ${code}`);
  const lines = [
    `- **Status** ${[...statuses].join(', ')}${isShared ? `; in idp \`${inOAuth(error)}\`` : ''}`,
    ...causes.map((cause) => `- **Cause** ${escapeHtml(cause)}`),
    ...(remedy ? [`- **Remedy** ${escapeHtml(remedy)}`] : []),
  ];
  return `### ${heading}\n\n${lines.join('\n')}`;
}

/** @param tables the errors of both products, and of each */
export function errorsPage(note, tables) {
  const saas = entriesOf(tables['saas-backend']);
  const anchors = new Set([...entriesOf(tables.both), ...saas].map(({ code }) => code.toLowerCase()));
  const sections = {
    both: entriesOf(tables.both).map((entry) => section(entry, { isShared: true })),
    saas: saas.map((entry) => section(entry)),
    // A code with the name of one of saas-backend gets an anchor of its own.
    idp: entriesOf(tables.idp).map((entry) =>
      section(entry, { heading: anchors.has(entry.code) ? `${entry.code} (idp)` : entry.code }),
    ),
  };
  const unknown = Object.keys(REMEDIES).filter((code) => !used.has(code));
  if (unknown.length > 0) throw new Error(`docs/error-remedies.mjs: no error has the code ${unknown}`);
  const formats = [
    ['saas-backend', '`{ "success": false, "message", "error": { "code", "details"?, "requestId" } }`'],
    ['idp', '`{ "error", "error_description", "details"? }`, the format of OAuth'],
    ['both, in a browser', 'a page'],
  ];
  return `${note}
# Errors

\`\`\`json
{
  "success": false,
  "message": "The request is invalid.",
  "error": {
    "code": "VALIDATION_ERROR",
    "details": [{ "path": "/email", "message": "…" }],
    "requestId": "req_…"
  }
}
\`\`\`

Decide by the code: codes are stable, messages can change. \`errors.md#refresh_token_reused\` is the address of a code.

${table(['Program', 'Response'], formats)}
- \`details\` has a \`path\` and a \`message\` for each invalid field: what is accepted, an example, and what was given. Free text is
  described (\`text of 12 characters\`) and never repeated; passwords and tokens never appear.
- A 429 or 503 response has \`Retry-After\`.

## Both

${sections.both.join('\n\n')}

## saas-backend

${sections.saas.join('\n\n')}

## idp

${sections.idp.join('\n\n')}
`;
}
