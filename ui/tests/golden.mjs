// Compares pictures with those in ui/tests/golden: a browser decodes both. UPDATE_GOLDEN=1 replaces them. They are WebP, which
// is a third of PNG.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const FOLDER = join(import.meta.dirname, 'golden');
/** A pixel differs if a channel differs by more: WebP loses a little, and the edges of letters may be smoothed in another way. */
const CHANNEL = 64;
/** The share of pixels that may differ. A line that moved or a text that is missing is more. */
const SHARE = 0.002;

/** Returns what is wrong with a picture, or `null`. A wrong one is kept in `folder`, beside the difference. */
export async function compare(browser, name, picture, folder) {
  const path = join(FOLDER, `${name}.webp`);
  const isUpdate = process.env.UPDATE_GOLDEN === '1';
  if (!isUpdate && !existsSync(path)) return `${name}: there is no golden image; look at the picture, and run with UPDATE_GOLDEN=1`;
  const page = await browser.newPage();
  const taken = `data:image/png;base64,${picture.toString('base64')}`;
  try {
    if (isUpdate) {
      mkdirSync(FOLDER, { recursive: true });
      writeFileSync(path, bytesOf(await page.evaluate(webp, taken)));
      return null;
    }
    const urls = [`data:image/webp;base64,${readFileSync(path, 'base64')}`, taken];
    const { sizes, share, image } = await page.evaluate(difference, { urls, channel: CHANNEL });
    if (sizes[0] !== sizes[1]) return `${name}: its size is ${sizes[1]}, and that of the golden image ${sizes[0]}`;
    if (share <= SHARE) return null;
    writeFileSync(join(folder, `${name}.wrong.png`), picture);
    writeFileSync(join(folder, `${name}.difference.png`), bytesOf(image));
    return `${name}: ${(share * 100).toFixed(2)} % of the pixels differ from the golden image: see ${name}.wrong.png and ${name}.difference.png in ${folder}; if they are right, run with UPDATE_GOLDEN=1`;
  } finally {
    await page.close();
  }
}

function bytesOf(url) {
  return Buffer.from(url.split(',')[1], 'base64');
}

/** Runs in the browser. */
async function webp(url) {
  const image = new Image();
  image.src = url;
  await image.decode();
  const canvas = Object.assign(document.createElement('canvas'), { width: image.width, height: image.height });
  canvas.getContext('2d').drawImage(image, 0, 0);
  return canvas.toDataURL('image/webp', 0.8);
}

/** Runs in the browser. */
async function difference({ urls, channel }) {
  const images = await Promise.all(urls.map(async (url) => {
    const image = new Image();
    image.src = url;
    await image.decode();
    return image;
  }));
  const sizes = images.map((image) => `${image.width} × ${image.height}`);
  if (sizes[0] !== sizes[1]) return { sizes };
  const { width, height } = images[0];
  const [golden, taken] = images.map((image) => {
    const context = Object.assign(document.createElement('canvas'), { width, height }).getContext('2d');
    context.drawImage(image, 0, 0);
    return { context, data: context.getImageData(0, 0, width, height) };
  });
  let different = 0;
  for (let at = 0; at < taken.data.data.length; at += 4) {
    const [one, other] = [golden.data.data, taken.data.data];
    const differs = [0, 1, 2].some((part) => Math.abs(one[at + part] - other[at + part]) > channel);
    if (!differs) continue;
    different++;
    other.set([255, 0, 255, 255], at);
  }
  taken.context.putImageData(taken.data, 0, 0);
  return { sizes, share: different / (width * height), image: taken.context.canvas.toDataURL('image/png') };
}
