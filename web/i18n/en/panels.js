export const log = {
  answered: 'Answered',
  below: '{share}% below',
  rate: 'tokens a second',
  speed: 'How fast the model writes',
  speedAbout: 'Tokens a second, the median of the answers of a time.',
  wait: 'How long you wait for the first word',
  waitAbout: 'From sending to the first token: of half, of nine in ten, and of all but one in a hundred answers.',
};

export const panel = {
  agents: 'Agents',
  close: 'Close',
  learned: 'Learned',
  notLoaded: 'The panel could not be loaded. Check your connection, then try again.',
  settings: 'Settings',
  tab_agents: 'Agents',
  tab_answers: 'Answers',
  tab_appearance: 'Appearance',
  tab_learning: 'Learning',
  tab_lessons: 'Lessons',
  tab_log: 'Log',
  tab_loops: 'Learning',
  tab_map: 'Map',
  tab_model: 'Model',
  tab_routing: 'Routing',
  tab_storage: 'Storage',
};
