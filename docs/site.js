// The copy button of a console block copies the commands, without prompts and without what they print.
function commands(code) {
  const copy = code.cloneNode(true);
  copy.querySelectorAll(".gp, .go").forEach((part) => part.remove());
  return copy.textContent.replace(/\n+/g, "\n").trim();
}

// The theme makes the button when the block comes into sight.
new MutationObserver((changes) => {
  for (const change of changes)
    for (const node of change.addedNodes) {
      const block = node.nodeType === 1 ? node.closest(".language-console") : null;
      const code = block && block.querySelector("code");
      const text = code ? commands(code) : "";
      if (text)
        block.querySelectorAll("button").forEach((b) => b.setAttribute("data-clipboard-text", text));
    }
}).observe(document.documentElement, { childList: true, subtree: true });

// Where a table has no room for its columns, each cell has its column's name (site.css).
// A picture opens alone, where a phone can enlarge it.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
    const names = [...table.querySelectorAll("th")].map((name) => name.textContent);
    if (names.length > 4)
      for (const cell of table.querySelectorAll("td")) cell.dataset.label = names[cell.cellIndex] || "";
  }
  for (const picture of document.querySelectorAll(".md-content p > img")) {
    const link = document.createElement("a");
    link.href = picture.src;
    picture.replaceWith(link);
    link.append(picture);
  }
});
