import { readFileSync } from 'node:fs';
import { Type } from 'typebox';
import { option } from '../config/options.js';
import { mustBe, shown } from '../config/validation-messages.js';
import { HEX, legibleOn, textOn } from './colours.js';
import { DisplayName, fits } from './schemas.js';

/** The appearance of the HTML pages. */
export interface Brand {
  name(): string;
  /** A `data:` URL, so that the logo is never a document of this origin. */
  logo?: string;
  /** CSS that follows the style sheet. */
  style?: string;
}

const MAX_NAME_LENGTH = 60;
/** Every page contains the logo. */
const MAX_LOGO_BYTES = 64 * 1024;

/** The backgrounds of `style.css` with the lowest contrast, in light and dark mode. */
const LIGHT_BACKGROUND = '#f4f5f7';
const DARK_BACKGROUND = '#1c212a';

const BrandName = {
  ...DisplayName,
  accepts: `a name of 1 to ${MAX_NAME_LENGTH} characters that is not blank and contains no control characters`,
  examples: ['My app'],
  maxLength: MAX_NAME_LENGTH,
};

/** Options for the appearance of the pages. */
export const brandOptions = {
  brandName: option(Type.Optional(Type.String()), {
    env: 'IDP_BRAND_NAME',
    doc: 'Product name in the header of the HTML pages.',
    shown: 'the host of IDP_PUBLIC_URL',
    check: (name = '') => (fits(name, BrandName) ? undefined : `${mustBe(BrandName, name)}.`),
  }),
  brandLogo: option(Type.Optional(Type.String()), {
    env: 'IDP_BRAND_LOGO',
    doc: 'Path of a logo file that replaces the name in the header: SVG, PNG, JPEG or WebP, at most 64 KiB. It appears on white and, in dark mode, on a nearly black background.',
    check: (file = '') => readLogo(file).problem,
  }),
  brandAccent: option(Type.Optional(Type.String()), {
    env: 'IDP_BRAND_ACCENT',
    doc: 'Colour of buttons and links, like #1f4fd8. Where the contrast is too low, a darker or lighter shade is used.',
    shown: '#1f4fd8',
    check: (colour = '') =>
      HEX.test(colour)
        ? undefined
        : `must be a colour of 3 or 6 hexadecimal digits, like #1f4fd8; given: ${shown(colour)}.`,
  }),
};

/** @param fallback the name if none is configured */
export function createBrand(
  values: { brandName?: string; brandLogo?: string; brandAccent?: string },
  fallback: () => string,
): Brand {
  const { brandName, brandLogo, brandAccent } = values;
  const { logo, problem } = brandLogo === undefined ? {} : readLogo(brandLogo);
  if (problem !== undefined) throw new Error(`IDP_BRAND_LOGO ${problem}`);
  return {
    name: () => brandName ?? fallback(),
    ...(logo !== undefined && { logo }),
    ...(brandAccent !== undefined && { style: accentStyle(brandAccent) }),
  };
}

/** Buttons use the colour itself under black or white text; text uses a legible shade of it. */
function accentStyle(colour: string): string {
  const inLight = `--accent:${colour};--on-accent:${textOn(colour)};--link:${legibleOn(LIGHT_BACKGROUND, colour)}`;
  const inDark = `--link:${legibleOn(DARK_BACKGROUND, colour)}`;
  return `:root{${inLight}}@media (prefers-color-scheme:dark){:root{${inDark}}}`;
}

/** Image types by their first bytes. */
const FORMATS: readonly (readonly [type: string, beginsWith: RegExp])[] = [
  ['image/png', /^\x89PNG\r\n\x1a\n/],
  ['image/jpeg', /^\xff\xd8\xff/],
  ['image/webp', /^RIFF[\s\S]{4}WEBP/],
  [
    'image/svg+xml',
    /^(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*|<!--[\s\S]*?-->\s*|<!doctype[^>[]*>\s*)*<svg[\s>]/i,
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
