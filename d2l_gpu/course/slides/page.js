// Start the slides: the theme, type that fits, and reveal.js with its speaker view.
(() => {
  const root = document.documentElement;
  const query = new URLSearchParams(location.search);
  const printing = query.has('print-pdf');
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const wanted = query.get('theme');
  let chosen = ['light', 'dark'].includes(wanted) ? wanted : printing ? 'light' : '';
  const show = () => { root.dataset.theme = chosen || (dark.matches ? 'dark' : 'light'); };
  dark.addEventListener('change', show);
  show();

  // Before reveal.js hides all slides but one: make type as large as its slide allows,
  // smaller where something would not fit, without more breaks in code.
  const SIZES = [1.3, 1.22, 1.15, 1.08, 1];
  for (let size = 0.96; size > 0.6; size -= 0.04) SIZES.push(size);
  const LARGE = [1.6, 1.5, 1.4, ...SIZES];  // of a few lines of text alone
  const bottom = (slide) => Math.max(...[...slide.children].map(
    (each) => each.offsetTop + each.scrollHeight));
  // Code and columns of numbers stay in their lines; a sentence may be broken.
  const broken = (slide) => {
    slide.classList.add('unbroken');
    const found = [...slide.querySelectorAll('pre')].some((each) =>
      (each.closest('.highlight') || each.textContent.trim().includes('\n'))
      && each.scrollWidth > each.clientWidth);
    slide.classList.remove('unbroken');
    return found;
  };
  const tooWide = (slide) => [...slide.querySelectorAll('table, math')].some(
    (each) => !each.closest('aside') && each.offsetWidth > 1168);
  const fits = (slide, size) => {
    slide.style.setProperty('--fit', size.toFixed(2));
    return bottom(slide) <= 674 && !tooWide(slide) && !(size > 1 && broken(slide));
  };
  const slides = document.querySelector('.slides');
  slides.classList.add('measured');
  for (const slide of slides.querySelectorAll(':scope > section > section')) {
    const more = slide.querySelector('pre, table, ul, ol, img, svg, h1');
    (more ? SIZES : LARGE).find((size) => fits(slide, size));
  }
  slides.classList.remove('measured');

  Reveal.initialize({
    width: 1280, height: 720, margin: 0, minScale: 0.1, maxScale: 6,
    center: false, display: 'flex', transition: 'none', backgroundTransition: 'none',
    hash: true, controlsTutorial: false, slideNumber: 'c/t', pdfSeparateFragments: false,
    pdfMaxPagesPerSlide: 1, navigationMode: 'default', scrollActivationWidth: null,
    plugins: [RevealNotes],
    keyboard: {
      84: () => { chosen = root.dataset.theme === 'dark' ? 'light' : 'dark'; show(); },
    },
  });
})();
