/** Colours with sufficient contrast (WCAG 2.2, success criterion 1.4.3). */

/** Minimum contrast ratio of text. */
const MIN_CONTRAST = 4.5;

/** Red, green and blue from 0 to 255. */
type Rgb = readonly [number, number, number];

/** `#1f4fd8` or `#14d`. */
export const HEX = /^#(?:[0-9a-f]{3}){1,2}$/i;

/** Black or white text for a background; one of them always has sufficient contrast. */
export function textOn(background: string): string {
  return contrast(rgbOf(background), WHITE) >= MIN_CONTRAST ? '#ffffff' : '#000000';
}

/** The colour itself if it is legible on the background, otherwise its nearest legible shade. */
export function legibleOn(background: string, colour: string): string {
  const behind = rgbOf(background);
  const towards = textOn(background) === '#ffffff' ? WHITE : BLACK;
  const shades = Array.from({ length: STEPS + 1 }, (_, step) =>
    between(rgbOf(colour), towards, step / STEPS),
  );
  return hexOf(shades.find((shade) => contrast(behind, shade) >= MIN_CONTRAST) ?? towards);
}

const STEPS = 50;
const BLACK: Rgb = [0, 0, 0];
const WHITE: Rgb = [255, 255, 255];

function rgbOf(hex: string): Rgb {
  const digits = hex.slice(1);
  const long = digits.length === 3 ? digits.replace(/./g, '$&$&') : digits;
  const [red = 0, green = 0, blue = 0] = long.match(/../g)?.map((pair) => Number.parseInt(pair, 16)) ?? [];
  return [red, green, blue];
}

function hexOf(rgb: Rgb): string {
  return `#${rgb.map((value) => value.toString(16).padStart(2, '0')).join('')}`;
}

/** A colour with a share of another one in it. */
export const mix = (colour: string, other: string, share: number): string =>
  hexOf(between(rgbOf(colour), rgbOf(other), share));

function between([red, green, blue]: Rgb, [r, g, b]: Rgb, share: number): Rgb {
  const at = (from: number, to: number) => Math.round(from + (to - from) * share);
  return [at(red, r), at(green, g), at(blue, b)];
}

/** Degrees of the colour wheel within which two colours look alike in a plot. */
const ALIKE = 30;

/** Whether two colours are hard to tell apart by their hue; greys are like no colour. */
export function isSimilarHue(one: string, other: string): boolean {
  const [first, second] = [hueOf(rgbOf(one)), hueOf(rgbOf(other))];
  if (first === null || second === null) return false;
  const distance = Math.abs(first - second);
  return Math.min(distance, 360 - distance) < ALIKE;
}

/** From 0 to 360 degrees; null for grey. */
function hueOf([red, green, blue]: Rgb): number | null {
  const range = Math.max(red, green, blue) - Math.min(red, green, blue);
  if (range < MIN_RANGE) return null;
  const degrees = Math.atan2(Math.sqrt(3) * (green - blue), 2 * red - green - blue) * (180 / Math.PI);
  return (degrees + 360) % 360;
}

/** Below, a colour is a grey. */
const MIN_RANGE = 24;

/** The contrast ratio, from 1 to 21. */
function contrast(one: Rgb, other: Rgb): number {
  const [dark = 0, light = 0] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

function luminance([red, green, blue]: Rgb): number {
  return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
}

function linear(value: number): number {
  const share = value / 255;
  return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
}
