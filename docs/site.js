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
