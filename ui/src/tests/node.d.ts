// The two parts of Node that tests use; all of its types would be another package.
declare module "node:test" {
  export default function test(claim: string, body: () => void | Promise<void>): void;
}

declare module "node:assert/strict" {
  const assert: {
    ok(value: unknown, message?: string): asserts value;
    equal<T>(actual: T, expected: T, message?: string): void;
    deepEqual<T>(actual: T, expected: T, message?: string): void;
    notEqual<T>(actual: T, expected: T, message?: string): void;
    match(text: string, pattern: RegExp): void;
    throws(body: () => unknown, error?: RegExp): void;
  };
  export default assert;
}
