export const header = {
  failed: 'Not running',
  gpuSpeed: 'How fast is my GPU?',
  loading: 'Loading',
  menu: 'Chats',
  model: 'The model and what runs it',
  models: 'Models',
};

export const pwa = {
  install: 'Install Sonata',
  notShared: 'What was shared did not arrive. Share it again.',
  offlineMark: 'Works offline',
  worksOffline: 'Sonata works offline now: everything that it needs is in this browser, the model too.',
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
  moved: 'The model moved to this tab or another one. What was being answered is asked again.',
};
