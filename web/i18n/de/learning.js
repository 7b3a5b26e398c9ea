/** Gelerntes, Lernen: was in Pausen lernt, und die Diagramme. */

export const idle = {
  done: 'Wie viel davon geschafft ist',
  goOn: 'Weitermachen',
  pause: 'Pausieren',
  title: 'In Pausen',
};

export const learning = {
  developers: 'Für Entwickler',
  looking: 'Das Gelernte wird angesehen …',
  now: 'Jetzt lernen',
};

export const plots = {
  after: 'nachher',
  asTable: 'Als Tabelle',
  before: 'vorher',
  fact: 'Tatsache',
  instant: 'Wie sicher das Modell bei dem ist, was du beigebracht hast',
  instantAbout: 'Die mittlere Wahrscheinlichkeit jedes Wortes der Antwort: ohne das, was du beigebracht hast, und damit.',
  loss: 'Fehlermaß des letzten Trainings',
  lossAbout: 'Wie überrascht das Modell Schritt für Schritt von den richtigen Wörtern war: Weniger ist besser.',
  lossName: 'Fehlermaß',
  norm: 'Größe des Adapters',
  normAbout: 'Die Norm von allem, was zu den Gewichten hinzukommt; 0, wenn ein Training nicht benutzt wurde.',
  normName: 'Norm',
  now: 'jetzt',
  plain: 'Modell allein',
  probe: 'Perplexität anderer Texte',
  probeAbout: 'Texte, an denen nie trainiert wurde: Macht ein Training sie unwahrscheinlicher, wird es abgeschwächt oder nicht benutzt.',
  recall: 'Tatsachen, die das Modell selbst weiß',
  recallAbout: 'Der Anteil der Tatsachen, die das Modell Wort für Wort beantwortet, ohne das sofort Gelernte.',
  step: 'Schritt',
  summary: '{name}: von {first} bis {last}.',
  summaryOfOne: '{name}: {last}.',
  table: 'Die Zahlen als Tabelle',
  training: 'Training',
};
