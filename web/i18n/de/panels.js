export const log = {
  answered: 'Beantwortet',
  below: '{share} % darunter',
  rate: 'Token je Sekunde',
  speed: 'Wie schnell das Modell schreibt',
  speedAbout: 'Token je Sekunde, der Median der Antworten einer Zeit.',
  wait: 'Wie lange du auf das erste Wort wartest',
  waitAbout: 'Vom Senden bis zum ersten Token: bei der Hälfte, bei neun von zehn, bei allen bis auf eine von hundert Antworten.',
};

export const panel = {
  agents: 'Agenten',
  close: 'Schließen',
  learned: 'Gelerntes',
  notLoaded: 'Die Ansicht ließ sich nicht laden. Prüfe deine Verbindung und versuch es noch einmal.',
  settings: 'Einstellungen',
  tab_agents: 'Agenten',
  tab_answers: 'Antworten',
  tab_appearance: 'Aussehen',
  tab_learning: 'Lernen',
  tab_lessons: 'Lektionen',
  tab_log: 'Protokoll',
  tab_loops: 'Lernen',
  tab_map: 'Karte',
  tab_model: 'Modell',
  tab_routing: 'Verteilung',
  tab_storage: 'Speicher',
};
