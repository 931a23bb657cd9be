// Save a picture of the page as a file. Its colours come from the style sheet, so they are written into the copy.

const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "paint-order", "font-family", "font-size"];

export function saveSvg(picture: SVGSVGElement, name: string): void {
  save(new Blob([standalone(picture)], { type: "image/svg+xml" }), `${name}.svg`);
}

export function savePng(picture: SVGSVGElement, name: string): void {
  const { width, height } = picture.getBoundingClientRect();
  const image = new Image();
  image.onload = () => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [width * 2, height * 2];
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => blob !== null && save(blob, `${name}.png`));
  };
  // The page's policy allows images from data: URLs, and no others.
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(picture))}`;
}

function standalone(picture: SVGSVGElement): string {
  const { width, height } = picture.getBoundingClientRect();
  const copy = picture.cloneNode(true) as SVGSVGElement;
  const [originals, copies] = [picture.querySelectorAll("*"), copy.querySelectorAll("*")];
  originals.forEach((original, at) => {
    const style = getComputedStyle(original);
    for (const property of STYLES) copies[at]?.setAttribute(property, style.getPropertyValue(property));
  });
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  return new XMLSerializer().serializeToString(copy);
}

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
