import { readFileSync } from 'node:fs';
import { Type } from 'typebox';
import type { Report } from '../config/configuration-error.js';
import { option } from '../config/options.js';
import { formatValue, mustBe } from '../config/validation-messages.js';
import { HEX, isSimilarHue, legibleOn, mix, textOn } from './colours.js';
import { DisplayName, matchesSchema } from './schemas.js';

/** The appearance of pages and mails. */
export type Brand = ReturnType<typeof createBrand>;

/** Colours with sufficient contrast, in light and dark mode. */
export interface BrandColours {
  button: string;
  buttonText: string;
  link: string;
  darkButton: string;
  darkButtonText: string;
  darkLink: string;
}

/** Those of `style.css`. */
export const STANDARD_COLOURS: BrandColours = {
  button: '#1f4fd8',
  buttonText: '#ffffff',
  link: '#1f4fd8',
  darkButton: '#8fb0ff',
  darkButtonText: '#0c1220',
  darkLink: '#8fb0ff',
};

const MAX_NAME_LENGTH = 60;
/** Every page contains the logo. */
const MAX_LOGO_BYTES = 64 * 1024;

/** What lies behind text in `style.css`. The tint of the accent on it has the lowest contrast. */
const LIGHT_BACKGROUND = '#f6f7f9';
const DARK_BACKGROUND = '#161b23';
/** Share of the accent in its tint. */
const TINT = 0.1;

const BrandName = {
  ...DisplayName,
  accepts: `a name of 1 to ${MAX_NAME_LENGTH} characters that is not blank and contains no control characters`,
  examples: ['My app'],
  maxLength: MAX_NAME_LENGTH,
};

const LOGO = 'SVG, PNG, JPEG or WebP, at most 64 KiB';

/**
 * Options for the appearance of pages and mails.
 *
 * @param prefix of the environment variables
 * @param fallback describes the default name
 */
export const brandOptions = (prefix: '' | 'IDP_', fallback: string) => ({
  brandName: option(Type.Optional(Type.String()), {
    env: `${prefix}BRAND_NAME`,
    doc: 'Product name in the header of the HTML pages and in e-mails.',
    shown: fallback,
    check: (name = '') => (matchesSchema(name, BrandName) ? undefined : `${mustBe(BrandName, name)}.`),
  }),
  brandLogo: option(Type.Optional(Type.String()), {
    env: `${prefix}BRAND_LOGO`,
    doc: `Path of a logo file that replaces the name in the header of the HTML pages: ${LOGO}. It appears on white and, without ${prefix}BRAND_LOGO_DARK, in dark mode on a nearly black background.`,
    check: (file = '') => readLogo(file).problem,
  }),
  brandLogoDark: option(Type.Optional(Type.String()), {
    env: `${prefix}BRAND_LOGO_DARK`,
    doc: `Path of the logo for dark mode: ${LOGO}.`,
    check: (file = '') => readLogo(file).problem,
  }),
  brandAccent: option(Type.Optional(Type.String()), {
    env: `${prefix}BRAND_ACCENT`,
    doc: 'Colour of buttons and links, like #1f4fd8. Where the contrast is too low, a darker or lighter shade is used.',
    shown: STANDARD_COLOURS.link,
    check: (colour = '') =>
      HEX.test(colour)
        ? undefined
        : `must be a colour of 3 or 6 hexadecimal digits, like #1f4fd8; given: ${formatValue(colour)}.`,
  }),
});

interface BrandConfiguration {
  brandName?: string;
  brandLogo?: string;
  brandLogoDark?: string;
  brandAccent?: string;
}

/** Rejects a logo for dark mode alone. @param prefix of the environment variables */
export function refuseLoneDarkLogo(
  { brandLogo, brandLogoDark }: BrandConfiguration,
  prefix: '' | 'IDP_',
  report: Report,
): void {
  if (brandLogoDark === undefined || brandLogo !== undefined) return;
  // An invalid file is reported already.
  if (readLogo(brandLogoDark).problem !== undefined) return;
  report.refuse(`${prefix}BRAND_LOGO_DARK requires ${prefix}BRAND_LOGO.`, `Set ${prefix}BRAND_LOGO, too.`);
}

/** @param fallback the name if none is configured */
export function createBrand(values: BrandConfiguration, fallback: () => string) {
  const { brandName, brandLogo, brandLogoDark, brandAccent } = values;
  const colours = brandAccent === undefined ? STANDARD_COLOURS : coloursOf(brandAccent);
  return {
    name: (): string => brandName ?? fallback(),
    // A `data:` URL, so that the logo is never a document of this origin.
    ...(brandLogo !== undefined && { logo: loadLogo(brandLogo) }),
    ...(brandLogoDark !== undefined && { logoDark: loadLogo(brandLogoDark) }),
    ...(brandAccent !== undefined && { style: styleOf(colours) }),
    /** The colours of mails, whose style sheet some mail programs remove. */
    colours,
  };
}

/** Buttons have the colour itself under black or white text; links have a legible shade of it. */
function coloursOf(accent: string): BrandColours {
  const button = { button: accent, buttonText: textOn(accent) };
  return {
    ...button,
    link: legibleOn(mix(LIGHT_BACKGROUND, accent, TINT), accent),
    darkButton: button.button,
    darkButtonText: button.buttonText,
    darkLink: legibleOn(mix(DARK_BACKGROUND, accent, TINT), accent),
  };
}

function styleOf({ button, buttonText, link, darkLink }: BrandColours): string {
  const tintOn = (background: string) => `--tint:${mix(background, button, TINT)}`;
  const inLight = `--accent:${button};--on-accent:${buttonText};--link:${link};${tintOn(LIGHT_BACKGROUND)}`;
  const inDark = `--link:${darkLink};${tintOn(DARK_BACKGROUND)};${seriesBeside(button, DARK_SERIES)}`;
  return `:root{${inLight};${seriesBeside(button, SERIES)}}@media (prefers-color-scheme:dark){:root{${inDark}}}`;
}

/** The series of a plot beside the accent: those of `style.css`, of which the ones that look like the accent come last. */
const seriesBeside = (accent: string, series: readonly string[]): string =>
  series
    .toSorted((one, other) => Number(isSimilarHue(accent, one)) - Number(isSimilarHue(accent, other)))
    .map((colour, index) => `--series-${index + 2}:${colour}`)
    .join(';');
const SERIES = ['#b45309', '#0f766e', '#a21caf', '#5a6371', '#a51d2d', '#4d7c0f', '#6d28d9'];
const DARK_SERIES = ['#fbbf24', '#5eead4', '#f0abfc', '#a6afbd', '#ffa3ad', '#bef264', '#c4b5fd'];

/** @throws if the file has changed since the options were validated */
function loadLogo(file: string): string {
  const { logo, problem } = readLogo(file);
  if (logo === undefined) throw new Error(`The path of the logo ${problem}`);
  return logo;
}

/** Image types by their first bytes. */
const FORMATS: readonly (readonly [type: string, beginsWith: RegExp])[] = [
  ['image/png', /^\x89PNG\r\n\x1a\n/],
  ['image/jpeg', /^\xff\xd8\xff/],
  ['image/webp', /^RIFF[\s\S]{4}WEBP/],
  [
    'image/svg+xml',
    /^(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*|<!--(?:-?[^-])*-->\s*|<!doctype[^>[]*>\s*)*<svg[\s>]/i,
  ],
];

/** Reads a logo as a `data:` URL, or describes the problem as the end of a sentence. */
function readLogo(file: string): { logo?: string; problem?: string } {
  let bytes: Buffer;
  try {
    bytes = readFileSync(file);
  } catch (error) {
    return { problem: `names a file that cannot be read (${(error as NodeJS.ErrnoException).code}).` };
  }
  if (bytes.length > MAX_LOGO_BYTES) return { problem: 'names a file of more than 64 KiB.' };
  const text = bytes.toString('latin1');
  const [type] = FORMATS.find(([, beginsWith]) => beginsWith.test(text)) ?? [];
  if (type === undefined) return { problem: 'must name an SVG, PNG, JPEG or WebP image.' };
  return { logo: `data:${type};base64,${bytes.toString('base64')}` };
}
