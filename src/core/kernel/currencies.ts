/** The currencies of the payment provider. Unicode defines the smallest unit of some differently, such as the Hungarian forint. */

/** https://docs.stripe.com/currencies#minor-units */
const ZERO_DECIMAL = new Set('BIF CLP DJF GNF JPY KMF KRW MGA PYG RWF VND VUV XAF XOF XPF'.split(' '));
const THREE_DECIMAL = new Set('BHD JOD KWD OMR TND'.split(' '));

/** The decimals of an amount: 2 for `EUR`, whose amounts are in cents. @param currency ISO 4217, in any case */
export function decimalsOf(currency: string): number {
  const code = currency.toUpperCase();
  return ZERO_DECIMAL.has(code) ? 0 : THREE_DECIMAL.has(code) ? 3 : 2;
}

/** An amount in the currency's smallest unit, such as `29.00 EUR`. */
export function writeAmount(amount: number | null, currency: string | null): string | null {
  if (amount === null || currency === null) return null;
  const digits = decimalsOf(currency);
  return `${(amount / 10 ** digits).toFixed(digits)} ${currency.toUpperCase()}`;
}

/** An amount in the currency's smallest unit, as people of a language write it: `€29.00`. */
export function formatAmount(amount: number, currency: string, locale = 'en'): string {
  const code = currency.toUpperCase();
  const digits = decimalsOf(code);
  const format = { style: 'currency', currency: code, minimumFractionDigits: digits } as const;
  return new Intl.NumberFormat(locale, { ...format, maximumFractionDigits: digits }).format(
    amount / 10 ** digits,
  );
}
