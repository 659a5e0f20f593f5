// The copy button of a console block copies the commands, without prompts and without what they print.
function commands(code) {
  const copy = code.cloneNode(true);
  copy.querySelectorAll(".gp, .go").forEach((part) => part.remove());
  return copy.textContent.replace(/\n+/g, "\n").trim();
}

// The theme makes the button when the block scrolls into view.
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
    if (names.length > 2)
      for (const cell of table.querySelectorAll("td")) cell.dataset.label = names[cell.cellIndex] || "";
  }
  for (const picture of document.querySelectorAll(".md-content p > img")) {
    const link = document.createElement("a");
    link.href = picture.src;
    picture.replaceWith(link);
    link.append(picture);
  }
});

// The search takes each word of a question for the beginning of a word: the "in" of "run as root in container"
// finds "install" and "interactive", and "slowly" does not find "slow". What the index lacks (lunr's stop words)
// is left out of a question, unless it has no other word or is quoted, and so is the ending of a word.
const STOP_WORDS = new Set(`
  a able about across after all almost also am among an and any are as at be because been but by can cannot
  could dear did do does either else ever every for from get got had has have he her hers him his how however i
  if in into is it its just least let like likely may me might most must my neither no nor not of off often on
  only or other our own rather said say says she should since so some than that the their them then there these
  they this tis to too twas us wants was we were what when where which while who whom why will with would yet
  you your`.trim().split(/\s+/));

const ENDING = /^(.{4,}?)(?:s|ed|ing|ly)$/;

function beginnings(question) {
  if (question.includes('"')) return question;
  const words = question.split(/\s+/);
  const wanted = words.filter((word) => !STOP_WORDS.has(word.toLowerCase()));
  return (wanted.join("") ? wanted : words).map((word) => word.replace(ENDING, "$1")).join(" ");
}

// The theme sends what is typed to its worker as a message of type 2.
const send = Worker.prototype.postMessage;
Worker.prototype.postMessage = function (message, ...rest) {
  const asked = message && message.type === 2 && typeof message.data === "string";
  send.call(this, asked ? { ...message, data: beginnings(message.data) } : message, ...rest);
};
