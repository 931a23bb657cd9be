// A traceback of Python in parts, so that frames of libraries can be folded. Pure.

export interface Part {
  library: boolean;
  /** How many frames are in it; 0 for other text. */
  frames: number;
  text: string;
}

const FRAME = /^\s*File "(.*)", line \d+/;
const LIBRARY =
  /[\\/](site-packages|dist-packages)[\\/]|[\\/]lib[\\/]python3|[\\/]Lib[\\/]|^<frozen |[\\/]monque[\\/]_engine[\\/]/;

/** Frames that follow each other and are alike form one part. */
export function partsOf(traceback: string): Part[] {
  const parts: Part[] = [];
  let inFrame = false;
  for (const line of traceback.split("\n")) {
    const file = FRAME.exec(line)?.[1];
    // Lines of a frame are indented deeper than the text around it.
    inFrame = file !== undefined || (inFrame && /^\s{4}/.test(line));
    const last = parts.at(-1);
    if (file !== undefined) {
      const library = LIBRARY.test(file);
      if (last !== undefined && last.frames > 0 && last.library === library) extend(last, line, 1);
      else parts.push({ library, frames: 1, text: line });
    } else if (last !== undefined && last.frames > 0 === inFrame) extend(last, line, 0);
    else parts.push({ library: false, frames: 0, text: line });
  }
  return parts;
}

function extend(part: Part, line: string, frames: number): void {
  part.text += `\n${line}`;
  part.frames += frames;
}
