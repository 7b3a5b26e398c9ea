/**
 * Which cards an empty chat shows. Those in index.html are what the shipped model was measured to do well
 * (docs/decisions/0063), in English alone: in another language the cards offer what Sonata computes and learns, without the
 * model. A clearly larger model is offered what the shipped one failed at.
 */

const LARGER = 1.2e9; // parameters: below, models are too near to the shipped one for anybody to promise more

/** @typedef {{name: string, icon: string, isDraft?: boolean}} Card `name`: chat.card_NAME of the texts is its title, chat.ask_NAME
 *   what it asks; a draft waits for the user's words */

/** @type {Card[]} */
const FOR_LARGER = [
  { name: 'summarise', icon: 'file-text', isDraft: true },
  { name: 'rewrite', icon: 'pencil', isDraft: true },
  { name: 'code', icon: 'wand-sparkles' },
  { name: 'plan', icon: 'map' },
];

/** @type {Card[]} */
const WITHOUT_THE_MODEL = [
  { name: 'compute', icon: 'calculator' },
  { name: 'convert', icon: 'gauge' },
  { name: 'days', icon: 'history' },
  { name: 'teach', icon: 'brain', isDraft: true },
];

/**
 * @param {number|null|undefined} parameters of the model that runs; not known: as a small one
 * @param {string} language of the page
 * @returns {Card[]|null} null: those of index.html
 */
export function cardsFor(parameters, language) {
  if ((parameters ?? 0) >= LARGER) return FOR_LARGER;
  return language === 'en' ? null : WITHOUT_THE_MODEL;
}
