export * from 'hash-wasm';
