/** Learned, Learning: what learns in pauses, and the plots. */

export const idle = {
  done: 'How much of it is done',
  goOn: 'Resume',
  pause: 'Pause',
  title: 'In pauses',
};

export const learning = {
  developers: 'For developers',
  looking: 'Looking at what was learned…',
  now: 'Learn now',
};

export const plots = {
  after: 'after',
  asTable: 'As a table',
  before: 'before',
  fact: 'Fact',
  instant: 'How sure the model is of what you taught',
  instantAbout: 'The probability of each word of the answer, on average: without what you taught, and with it.',
  loss: 'Loss of the last training',
  lossAbout: 'How surprising the right words were to the model, step by step: less is better.',
  lossName: 'loss',
  norm: 'Size of the adapter',
  normAbout: 'The norm of all that is added to the weights; 0 if a training was not used.',
  normName: 'norm',
  now: 'now',
  plain: 'plain model',
  probe: 'Perplexity of other texts',
  probeAbout: 'Texts that were never trained on: a training that makes them less likely is scaled down, or not used.',
  recall: 'Facts that the model itself knows',
  recallAbout: 'The share of the facts that the model answers word for word, without what is learned at once.',
  step: 'Step',
  summary: '{name}: from {first} to {last}.',
  summaryOfOne: '{name}: {last}.',
  table: 'The numbers as a table',
  training: 'Training',
};
