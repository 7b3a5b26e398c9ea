/**
 * The cards that an empty chat shows. The cards in index.html are tasks that the shipped model was measured to do well
 * (docs/decisions/0063), in English only: in another language the cards offer what Sonata computes and learns without the
 * model. With a clearly larger model, the cards offer tasks at which the shipped one failed.
 */

const LARGER = 1.2e9; // parameters: below, models are too close to the shipped one to promise more

/**
 * @typedef {{name: string, icon: string, isDraft?: boolean}} Card `name`: chat.card_NAME of the texts is its title,
 *   chat.ask_NAME its question; a draft waits for the user's words
 */

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
 * @param {number|null|undefined} parameters of the running model; unknown counts as small
 * @param {string} language of the page
 * @returns {Card[]|null} null: the cards of index.html
 */
export function cardsFor(parameters, language) {
  if ((parameters ?? 0) >= LARGER) return FOR_LARGER;
  return language === 'en' ? null : WITHOUT_THE_MODEL;
}
