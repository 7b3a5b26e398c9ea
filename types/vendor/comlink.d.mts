export * from 'comlink';
