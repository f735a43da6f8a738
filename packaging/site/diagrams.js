// Draws the mermaid blocks of a page, in the colours of its theme. Without it, or after an error, they stay readable text.
(() => {
    const blocks = [...document.querySelectorAll("pre > code.language-mermaid")].map((code) => ({
        source: code.textContent,
        pre: code.parentElement,
        figure: null,
    }));
    if (blocks.length === 0) {
        return;
    }

    const isDark = () => ["coal", "navy", "ayu"].some((theme) => document.documentElement.classList.contains(theme));

    async function draw() {
        mermaid.initialize({
            startOnLoad: false,
            securityLevel: "strict",
            theme: isDark() ? "dark" : "neutral",
        });
        for (const [index, block] of blocks.entries()) {
            try {
                const { svg } = await mermaid.render(`diagram-${index}`, block.source);
                if (block.figure === null) {
                    block.figure = document.createElement("div");
                    block.figure.className = "diagram";
                    block.pre.replaceWith(block.figure);
                }
                block.figure.innerHTML = svg;
            } catch (error) {
                console.error("diagram", index, error);
            }
        }
    }

    // Only pages with a diagram load it. mdBook sets path_to_root.
    const script = document.createElement("script");
    script.src = `${path_to_root}mermaid.min.js`;
    script.onload = async () => {
        let dark = isDark();
        await draw();
        new MutationObserver(() => {
            if (isDark() !== dark) {
                dark = isDark();
                draw();
            }
        }).observe(document.documentElement, { attributeFilter: ["class"] });
    };
    document.head.append(script);
})();
