export const header = {
  failed: 'Läuft nicht',
  gpuSpeed: 'Wie schnell ist meine GPU?',
  loading: 'Lädt',
  menu: 'Gespräche',
  model: 'Das Modell und was es ausführt',
  models: 'Modelle',
};

export const pwa = {
  install: 'Sonata installieren',
  notShared: 'Was geteilt wurde, kam nicht an. Teile es noch einmal.',
  offlineMark: 'Geht ohne Netz',
  worksOffline: 'Sonata geht jetzt ohne Netz: Alles Nötige liegt in diesem Browser, auch das Modell.',
};

export const shortcuts = {
  ctrl: 'Strg',
  editLast: 'Deine letzte Nachricht ändern',
  list: 'Diese Liste',
  newChat: 'Neues Gespräch',
  newLine: 'Neue Zeile',
  search: 'Gespräche durchsuchen',
  send: 'Senden',
  settings: 'Einstellungen',
  shift: 'Umschalt',
  sidebar: 'Seitenleiste öffnen oder schließen',
  stop: 'Die Antwort anhalten, oder Offenes schließen',
  title: 'Tasten',
  write: 'Eine Nachricht schreiben',
};

export const tabs = {
  elsewhere: 'Ein anderer Tab lässt das Modell laufen. Was du hier änderst, gilt für alle Tabs.',
  moved: 'Das Modell läuft jetzt in diesem oder einem anderen Tab. Was gerade beantwortet wurde, wird noch einmal gefragt.',
};
