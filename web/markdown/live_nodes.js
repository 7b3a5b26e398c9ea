/** Nodes that stay while their content changes, so that a selection in them stays. */

/**
 * Update the nodes in `place` to those in `made`, node by node. @param {Node} place @param {Node} made its nodes may be moved
 */
export function become(place, made) {
  const shown = becomeFirst(place, made).length;
  while (place.childNodes.length > shown) place.lastChild?.remove();
}

/**
 * The same, but nodes of the place behind them stay.
 * @param {Node} place @param {Node} made @returns {ChildNode[]} the nodes of the place that now show those of `made`
 */
export function becomeFirst(place, made) {
  let old = place.firstChild;
  return [...made.childNodes].map((node) => {
    if (!old || !fits(old, node)) return place.insertBefore(node, old);
    const shown = old;
    old = old.nextSibling;
    return shown;
  });
}

/** @returns {boolean} true if the node now shows what was made */
function fits(old, made) {
  if (old.nodeName !== made.nodeName) return false;
  if (old instanceof Text) {
    let same = 0;
    while (same < made.data.length && made.data[same] === old.data[same]) same += 1;
    if (same < old.length || same < made.length) old.replaceData(same, old.length - same, made.data.slice(same));
    return true;
  }
  if (old.nodeName === 'FIGURE') return false; // code grows by itself (code_figure.js)
  if (old.dataset.formula || made.dataset.formula) return old.isEqualNode(made); // it may be drawn later
  for (const { name } of [...old.attributes]) if (!made.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  become(old, made);
  return true;
}

/** Run something that moves nodes, and keep the selection in them. @template Made @param {() => Made} run @returns {Made} */
export function keepSelection(run) {
  const selection = getSelection();
  const { anchorNode, anchorOffset, focusNode, focusOffset, isCollapsed } = selection ?? {};
  const made = run();
  const isLost = selection && (selection.anchorNode !== anchorNode || selection.focusNode !== focusNode);
  if (isLost && !isCollapsed && anchorNode?.isConnected && focusNode?.isConnected) {
    selection.setBaseAndExtent(anchorNode, within(anchorNode, anchorOffset), focusNode, within(focusNode, focusOffset));
  }
  return made;
}

/** Resolves once nothing is selected in an element. @param {Element} element */
export async function unselected(element) {
  while (isSelected(element)) {
    await new Promise((resolve) => document.addEventListener('selectionchange', resolve, { once: true }));
  }
}

function isSelected(element) {
  const selection = getSelection();
  return selection !== null && !selection.isCollapsed && selection.containsNode(element, true);
}

const within = (node, offset) => Math.min(offset, node instanceof Text ? node.length : node.childNodes.length);
