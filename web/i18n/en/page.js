export const header = {
  failed: 'Not running',
  loading: 'Loading',
  menu: 'Chats',
  model: 'The model and what runs it',
  models: 'All models and settings',
  skip: 'To the message box',
};

export const pwa = {
  install: 'Install Sonata',
  notShared: 'What was shared did not arrive. Share it again.',
  offlineMark: 'Works offline',
  sharedAbout: 'It is neither read nor stored until you add it. Other sites can send things here, too: discard what you did not share yourself.',
  sharedAdd: 'Add',
  sharedDiscard: 'Discard',
  sharedFiles: 'Files: {names}',
  sharedFrom: '{host} sent something to Sonata',
  sharedMore: { one: 'one more', other: '{count} more' },
  sharedText: 'Text: “{words}”',
  sharedTitle: 'Something was shared with Sonata',
  sharedTooLarge: 'What was shared is too large: the limit is 64 MB. Share a part of it.',
  worksOffline: 'Sonata works offline now: everything that it needs is in this browser, including the model.',
};

export const shortcuts = {
  ctrl: 'Ctrl',
  editLast: 'Edit your last message',
  list: 'This list',
  newChat: 'New chat',
  newLine: 'New line',
  search: 'Search chats',
  send: 'Send',
  settings: 'Settings',
  shift: 'Shift',
  sidebar: 'Open or close the side bar',
  stop: 'Stop the answer, or close what is open',
  title: 'Keys',
  write: 'Write a message',
};

export const tabs = {
  elsewhere: 'Another tab runs the model. What you change here is for all tabs.',
  moved: 'The model moved to this tab or another one. The message that was being answered is sent again.',
};

export const forms = {
  cancel: 'Cancel',
  delete: 'Delete',
  keep: 'Keep',
  save: 'Save',
  undo: 'Undo',
};

export const loading = {
  again: 'The model was loaded again. It does not know the messages above.',
  bytes: '{done} of {total}',
  label_model: 'Loading the model',
  label_python: 'Starting Python',
  label_routing: 'Loading routing',
  label_setup: 'Preparing the model',
  model: 'Model',
  python: 'Python',
  ready: 'The model is ready.',
  routing: 'Routing',
  setup: 'Setup',
  title: 'Loading',
};

export const lost = {
  allow: 'Allow cookies and site data for this address to change that.',
  chats: 'chats and what you teach',
  drafts: 'unsent messages',
  keeps: 'The browser does not let this page keep {what}. All of that is gone when the page closes.',
  model: 'the model',
  offline: 'the page itself for use without a network',
  settings: 'settings',
  tabs: 'Each tab runs the model for itself.',
};

export const notices = {
  dismiss: 'Dismiss',
  lockedChat: 'This conversation is in the locked memory:',
  lockedMemory: 'The memory is locked: your chats and what you taught are not known here.',
  multilingual: 'Sonata understands messages in your language better with a second model for meanings.',
  multilingualLoad: 'Load it ({size})',
  newVersion: 'A new version is ready:',
  notKept: 'What is said now is not kept: it is gone when the page closes.',
  reload: 'reload',
  unlock: 'unlock',
};

export const problems = {
  chatDeleted: 'This conversation was deleted.',
  chatGone: 'This conversation is not in this browser: it was deleted, or belongs to another browser.',
  chatShared: 'This conversation is open in another tab, too. What is said there appears here.',
  details: 'Details',
  engine: 'Something went wrong in the engine: {message}',
  engineNotStarted: 'The engine could not be started. Check your connection, then load again.',
  fileDamaged: 'Load it again. If that does not help, the file on the server is damaged.',
  loadAgain: 'Load again',
  loadModelAgain: 'Load the model again.',
  noSeconds: 'The address says {said}, which is ignored: {name} takes seconds, from 0.1 to {most}.',
  noWholeNumber: 'The address says {said}, which is ignored: {name} takes a whole number from 1 to {most}.',
  notStarted: 'The page could not be assembled. Reload it; if that does not help, try another browser. What is stored stays.',
  ownModel: 'Use my usual model',
  pageModel: 'Use the model of this page',
  partNotLoaded: 'A part of the page could not be loaded. Check your connection, then try again.',
  reload: 'Reload the page',
  reloadToStart: 'Reload the page to start again.',
  shorten: 'Shorten the message.',
  silentLoading: 'Loading has made no progress for a while. Check your connection. You can wait, or load again.',
  silentModel: 'The model has said nothing for a while. It may still be working: you can wait, stop the answer, or load again.',
  tabClosed: 'The tab that ran the model was closed. Try again in a moment.',
  tooLong: { one: 'The text is too long: it has {count} character, and the model reads at most {tokens} tokens. Shorten it, or send it in parts.', other: 'The text is too long: it has {count} characters, and the model reads at most {tokens} tokens. Shorten it, or send it in parts.' },
  uncaught: 'Something went wrong in the page: {message} If something does not work any more, reload the page.',
  useCpu: 'Use the CPU instead',
  veryLong: 'The message is very long. Send it once the model is loaded: only then does Sonata know whether it fits.',
  wait: 'Wait',
};

export const status = {
  cpu: 'the CPU, {kind}',
  failed: 'The model is not running',
  loading: 'Loading the model',
  on: '{model} on {device}',
  software: 'This GPU is emulated by software, which is slow. The CPU answers faster.',
  withAdapter: '{model} with {adapter}',
  diffusion: 'It writes by diffusion: several words at once.',
};

export const site = {
  damaged: 'A part of the page ({path}) is damaged in this browser, and its server does not deliver it. Reload when the server can be reached.',
  mended: 'A part of the page was damaged in this browser and has been fetched again. Reload to use it.',
  noRoom: 'There is no room in this browser to store the page, so it does not work offline. Free some disk space, then reload.',
  updateFailed: 'The update failed: {path} on the server is not the file that its list names. This version still works. Build the site again on the server.',
};
