/**
 * Which cards an empty chat shows. Those in index.html are what the shipped model was measured to do well
 * (docs/decisions.md); a clearly larger one is offered what the shipped one failed at.
 */

const LARGER = 1.2e9; // parameters: below, models are too near to the shipped one for anybody to promise more

/** @typedef {{name: string, icon: string, text: string, isDraft?: boolean}} Card `name`: chat.card_NAME of the texts; a draft waits for the user's words */

/** @type {Card[]} */
const FOR_LARGER = [
  { name: 'summarise', icon: 'file-text', text: 'Summarise this text in three sentences: ', isDraft: true },
  { name: 'rewrite', icon: 'pencil', text: 'Rewrite this message in a friendly and brief tone: ', isDraft: true },
  { name: 'code', icon: 'wand-sparkles', text: 'Write a Python function that groups the words of a text by their first letter, with two tests.' },
  { name: 'plan', icon: 'map', text: 'Plan a rainy weekend with two children, hour by hour, at little cost.' },
];

/**
 * @param {number|null|undefined} parameters of the model that runs; not known: as a small one
 * @returns {Card[]|null} null: those of index.html
 */
export function cardsFor(parameters) {
  return (parameters ?? 0) >= LARGER ? FOR_LARGER : null;
}
