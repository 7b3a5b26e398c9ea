export const header = {
  failed: 'Läuft nicht',
  loading: 'Lädt',
  menu: 'Gespräche',
  model: 'Das Modell und was es ausführt',
  models: 'Alle Modelle und Einstellungen',
  skip: 'Zum Nachrichtenfeld',
};

export const pwa = {
  install: 'Sonata installieren',
  notShared: 'Was geteilt wurde, kam nicht an. Teile es noch einmal.',
  offlineMark: 'Geht ohne Netz',
  sharedAbout: 'Nichts davon wird gelesen oder gespeichert, bevor du es hinzufügst. Auch fremde Seiten können so etwas schicken: Verwirf, was du nicht selbst geteilt hast.',
  sharedAdd: 'Hinzufügen',
  sharedDiscard: 'Verwerfen',
  sharedFiles: 'Dateien: {names}',
  sharedFrom: '{host} hat etwas an Sonata geschickt',
  sharedMore: { one: 'eine weitere', other: '{count} weitere' },
  sharedText: 'Text: „{words}“',
  sharedTitle: 'Etwas wurde mit Sonata geteilt',
  sharedTooLarge: 'Was geteilt wurde, ist zu groß: Es darf 64 MB haben. Teile nur einen Teil davon.',
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

export const forms = {
  cancel: 'Abbrechen',
  delete: 'Löschen',
  keep: 'Behalten',
  save: 'Speichern',
  undo: 'Rückgängig',
};

export const loading = {
  again: 'Das Modell wurde neu geladen. Die Nachrichten oben kennt es nicht.',
  bytes: '{done} von {total}',
  label_model: 'Das Modell wird geladen',
  label_python: 'Python wird gestartet',
  label_routing: 'Der Router wird geladen',
  label_setup: 'Das Modell wird vorbereitet',
  model: 'Modell',
  python: 'Python',
  ready: 'Das Modell ist bereit.',
  routing: 'Verteilung',
  setup: 'Vorbereitung',
  title: 'Lädt',
};

export const lost = {
  allow: 'Erlaube Cookies und Websitedaten für diese Adresse, um das zu ändern.',
  chats: 'Gespräche und was du beibringst',
  drafts: 'ungesendete Nachrichten',
  keeps: 'Der Browser lässt diese Seite nichts davon aufbewahren: {what}. All das ist weg, sobald die Seite geschlossen wird.',
  model: 'das Modell',
  offline: 'die Seite selbst für die Zeit ohne Netz',
  settings: 'Einstellungen',
  tabs: 'Jeder Tab lässt das Modell für sich laufen.',
};

export const notices = {
  dismiss: 'Ausblenden',
  lockedChat: 'Dieses Gespräch liegt im gesperrten Gedächtnis:',
  lockedMemory: 'Das Gedächtnis ist gesperrt: Deine Gespräche und was du beigebracht hast, sind hier nicht bekannt.',
  multilingual: 'Mit einem zweiten Modell für Bedeutungen versteht Sonata Deutsch besser: welcher Agent antwortet, was du beigebracht hast und was in Dateien steht.',
  multilingualLoad: 'Laden ({size})',
  newVersion: 'Eine neue Version ist da:',
  notKept: 'Was jetzt gesagt wird, wird nicht aufbewahrt: Es ist weg, sobald die Seite geschlossen wird.',
  reload: 'neu laden',
  unlock: 'entsperren',
};

export const problems = {
  chatDeleted: 'Dieses Gespräch wurde gelöscht.',
  chatGone: 'Dieses Gespräch ist nicht in diesem Browser: Es wurde gelöscht oder gehört zu einem anderen.',
  chatShared: 'Dieses Gespräch ist auch in einem anderen Tab offen. Was dort gesagt wird, erscheint hier.',
  details: 'Einzelheiten',
  engine: 'Im Kern ist etwas schiefgegangen: {message}',
  engineNotStarted: 'Der Kern ließ sich nicht starten. Prüfe deine Verbindung und lade noch einmal.',
  fileDamaged: 'Lade noch einmal. Hilft das nicht, ist die Datei auf dem Server beschädigt.',
  loadAgain: 'Noch einmal laden',
  loadModelAgain: 'Lade das Modell noch einmal.',
  noSeconds: 'In der Adresse steht {said}, das zählt nicht: {name} sind Sekunden, von 0,1 bis {most}.',
  noWholeNumber: 'In der Adresse steht {said}, das zählt nicht: {name} ist eine ganze Zahl von 1 bis {most}.',
  notStarted: 'Die Seite ließ sich nicht aufbauen. Lade sie neu; hilft das nicht, versuch einen anderen Browser. Was gespeichert ist, bleibt.',
  ownModel: 'Mein übliches Modell nehmen',
  pageModel: 'Das Modell dieser Seite nehmen',
  partNotLoaded: 'Ein Teil der Seite ließ sich nicht laden. Prüfe deine Verbindung und versuch es noch einmal.',
  reload: 'Seite neu laden',
  reloadToStart: 'Lade die Seite neu, um von vorn zu beginnen.',
  shorten: 'Kürze die Nachricht.',
  silentLoading: 'Das Laden kommt seit einer Weile nicht voran. Prüfe deine Verbindung. Du kannst warten oder noch einmal laden.',
  silentModel: 'Das Modell sagt seit einer Weile nichts. Vielleicht arbeitet es noch: Du kannst warten, die Antwort anhalten oder noch einmal laden.',
  tabClosed: 'Der Tab, in dem das Modell lief, wurde geschlossen. Versuch es gleich noch einmal.',
  tooLong: { one: 'Der Text ist zu lang: Er hat {count} Zeichen, und das Modell liest höchstens {tokens} Token. Kürze ihn oder schick ihn in Teilen.', other: 'Der Text ist zu lang: Er hat {count} Zeichen, und das Modell liest höchstens {tokens} Token. Kürze ihn oder schick ihn in Teilen.' },
  uncaught: 'In der Seite ist etwas schiefgegangen: {message} Geht etwas nicht mehr, lade die Seite neu.',
  useCpu: 'Die CPU nehmen',
  veryLong: 'Die Nachricht ist sehr lang. Schick sie, wenn das Modell geladen ist: Erst dann zeigt sich, ob sie passt.',
  wait: 'Warten',
};

export const status = {
  cpu: 'der CPU, {kind}',
  failed: 'Das Modell läuft nicht',
  loading: 'Das Modell wird geladen',
  on: '{model} auf {device}',
  software: 'Diese GPU wird von Software nachgebildet, das ist langsam. Die CPU antwortet schneller.',
  withAdapter: '{model} mit {adapter}',
  diffusion: 'Es schreibt durch Diffusion: mehrere Wörter auf einmal.',
};

export const site = {
  damaged: 'Ein Teil der Seite ({path}) ist in diesem Browser beschädigt, und der Server liefert ihn nicht. Lade neu, wenn der Server erreichbar ist.',
  mended: 'Ein Teil der Seite war in diesem Browser beschädigt und wurde neu geholt. Lade neu, um ihn zu verwenden.',
  noRoom: 'In diesem Browser ist kein Platz, um die Seite zu speichern. Darum geht sie nicht ohne Netz. Schaff Platz auf der Festplatte und lade neu.',
  updateFailed: 'Die Aktualisierung ist fehlgeschlagen: {path} auf dem Server ist nicht die Datei, die in seiner Liste steht. Diese Version funktioniert weiter. Baue die Website auf dem Server neu.',
};
