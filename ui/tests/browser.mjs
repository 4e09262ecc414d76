// Drives the dashboard's page in headless Chromium: node browser.mjs SCENARIO URL FOLDER
//
// tests/dashboard/browser_tests.py starts what the page shows. A scenario fails with a message; a page with an error on its
// console, a request to another origin, a dialog, or a violation that axe-core finds, fails every scenario.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';
import { answerTo, NOW } from './fixture.mjs';
import { compare } from './golden.mjs';

const [scenario, url, folder] = process.argv.slice(2);
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium-headless-shell';
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const SIZES = {
  desktop: { viewport: { width: 1280, height: 860 } },
  dark: { viewport: { width: 1280, height: 860 }, colorScheme: 'dark' },
  phone: { viewport: { width: 390, height: 844 }, hasTouch: true },
};
const origin = new URL(url).origin;
const problems = [];

const scenarios = { views, actions, keyboard, hostile, many, gone, router, golden };
const browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'] });
try {
  await scenarios[scenario]();
} catch (error) {
  problems.push(error.stack);
} finally {
  await browser.close();
}
problems.forEach((problem) => console.error(problem));
// Our input may still be open.
process.exit(problems.length > 0 ? 1 : 0);

/** Every view, in each size and theme, with load behind it. */
async function views() {
  for (const [size, options] of Object.entries(SIZES)) {
    const page = await open(options);
    const visit = async (hash, ready) => {
      await page.goto(`${origin}/#/${hash}`);
      await ready();
      await inspect(page, `${hash.split('/')[0]}-${size}`);
    };
    const text = (text) => page.getByText(text).first().waitFor();
    await visit('now', () => text('/report?wait=1'));
    await visit('application/shop', () => text('Why this number of processes'));
    await visit('history', async () => {
      await page.getByRole('combobox', { name: 'Time' }).selectOption('900');
      await text('the configuration when the history began');
      await page.waitForFunction(() => [...document.querySelectorAll('[role=img]')].some((chart) => /last [1-9]/.test(chart.ariaLabel)));
    });
    await visit('slow/shop', async () => {
      await page.locator('.slow summary').first().click();
      await text('wait_for_the_report');
    });
    await visit('leaks', () => text('in worker mode'));
    await visit('configuration', async () => {
      await page.waitForFunction(() => document.querySelector('textarea')?.value.includes('listeners'));
      const area = page.locator('textarea');
      await area.evaluate((area) => area.setSelectionRange(area.value.indexOf('"root"') + 3, area.value.indexOf('"root"') + 3));
      await area.press('ArrowRight');
      await text('applications/blog/root');
    });
    await visit('certificates', () => text('There is no certificate'));
    await visit('profile/shop', async () => {
      await page.getByRole('button', { name: 'Start', exact: true }).click();
      await page.locator('.frame').nth(3).waitFor();
      await page.getByRole('button', { name: 'Stop', exact: true }).click();
      await page.getByRole('button', { name: 'Start', exact: true }).waitFor();
    });
    await page.context().close();
  }
}

/** Every view with fixed content, pixel by pixel: nothing has moved or lost its colour. */
async function golden() {
  for (const [size, options] of Object.entries(SIZES)) {
    const state = { profiles: 0, isGone: false };
    const page = await open({ ...options, timezoneId: 'UTC', locale: 'en-GB' }, [], (page) => fixed(page, state));
    const visit = async (hash, ready) => {
      await page.goto(`${origin}/#/${hash}`);
      await ready();
      // axe-core takes seconds for each page; in the other sizes and themes, `views` has it look.
      await inspect(page, `fixed-${hash.split('/')[0]}-${size}`, size === 'desktop');
      const picture = await page.screenshot({ animations: 'disabled', caret: 'hide' });
      const problem = await compare(browser, `${hash.split('/')[0]}-${size}`, picture, folder);
      if (problem) problems.push(problem);
    };
    const text = (text) => page.getByText(text).first().waitFor();
    const button = (name) => page.getByRole('button', { name, exact: true });
    await visit('now', async () => {
      await text('/report?year=2026');
      await button('Stack').first().click();
      await text('wait_for_the_report');
    });
    await visit('application/shop', () => text('no worker took it in time'));
    await visit('history', async () => {
      await page.waitForFunction(() => document.querySelectorAll('.chart canvas').length === 10);
      await page.locator('.mark-line button').nth(2).click();
      await text('/srv/shop/releases/41/public');
    });
    await visit('slow/shop', async () => {
      await page.locator('.slow summary').nth(1).click();
      await text('worker 702, which held 3 requests');
      await page.locator('.slow summary').first().click();
      await text('PDOStatement::execute in poll');
    });
    await visit('leaks/shop', async () => {
      await button('Start').click();
      await text('Objects that stay');
    });
    await visit('configuration', async () => {
      await page.waitForFunction(() => document.querySelector('textarea')?.value.includes('listeners'));
      const area = page.locator('textarea');
      await area.fill((await area.inputValue()).replace('30', '60'));
      await area.evaluate((area) => area.setSelectionRange(area.value.indexOf('"timeout"') + 3, area.value.indexOf('"timeout"') + 3));
      await area.press('ArrowRight');
      await text('applications/shop/limits/timeout');
    });
    await visit('certificates', () => text('Obtained by howdah'));
    await visit('profile/shop', async () => {
      for (let turn = 0; turn < 2; turn++) {
        await button('Start').click();
        await button('Stop').click();
        await button('Start').waitFor();
      }
      await page.getByLabel('Compared with').selectOption('0');
      await text('own time changed most');
    });
    state.isGone = true;
    await visit('gone', () => text('howdah does not answer'));
    await page.context().close();
  }
}

/** The browser's clock stands still, and the answers are those of fixture.mjs. */
async function fixed(page, state) {
  await page.clock.setFixedTime(NOW);
  await page.route('**/api/**', async (route) => {
    const path = new URL(route.request().url()).pathname.replace('/api/', '');
    const answer = answerTo(path, state);
    if (answer === undefined) return route.continue();
    // A part of a profile takes longer than a click on Stop.
    if (path.endsWith('/profile')) await new Promise((resolve) => setTimeout(resolve, 300));
    return route.fulfill({ json: answer });
  });
}

/** A real router is killed under load: the page goes on, and the history has a mark. */
async function router() {
  const page = await open(SIZES.desktop, [/status of (401|500|502)/]);
  const lines = process.stdin[Symbol.asyncIterator]();
  await page.getByText('/report?wait=1').first().waitFor();
  process.stdout.write('kill\n');
  await lines.next();
  await page.waitForFunction(() => !document.querySelector('main .notice.problem'));
  await page.getByText('/report?wait=1').first().waitFor();
  await page.goto(`${origin}/#/history`);
  await page.getByText('the router was replaced').first().waitFor();
  await page.locator('.mark-line button').last().click();
  await inspect(page, 'replaced-desktop');
}

/** What a user can do. */
async function actions() {
  const page = await open(SIZES.desktop);
  await page.getByText('/report?wait=1').first().waitFor();
  await openStack(page);
  await inspect(page, 'stack-desktop');

  await page.goto(`${origin}/#/profile/shop`);
  for (let turn = 0; turn < 2; turn++) {
    await page.getByRole('button', { name: 'Start', exact: true }).click();
    await page.getByRole('button', { name: 'Stop', exact: true }).click();
    await page.getByRole('button', { name: 'Start', exact: true }).waitFor();
  }
  await page.getByLabel('Compared with').selectOption('0');
  await page.getByText('time than before').waitFor();
  await inspect(page, 'difference-desktop');
  const frames = await page.locator('.frame').count();
  await page.locator('.frame', { hasText: 'usleep' }).first().click();
  await page.getByRole('button', { name: 'Whole graph' }).click();
  assert.equal(await page.locator('.frame').count(), frames);

  await page.goto(`${origin}/#/configuration`);
  const area = page.locator('textarea');
  await page.waitForFunction(() => document.querySelector('textarea')?.value.includes('listeners'));
  const text = await area.inputValue();
  assert.ok(await page.getByRole('button', { name: 'Apply' }).isDisabled());
  await area.fill(text.replace('"listeners"', '"lsteners"'));
  await page.getByRole('button', { name: 'Check' }).click();
  await page.getByText('Line 2, column').waitFor();
  assert.equal(await area.evaluate((area) => area.value.slice(0, area.selectionStart).split('\n').length), 2);
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByText('lsteners').nth(1).waitFor();
  await area.fill(text.replace('{', '{\n  "settings": {"http": {"max_body_size": 123456}},'));
  await page.locator('.difference .added').getByText('123456').waitFor();
  await inspect(page, 'changes-desktop');
  await page.getByRole('button', { name: 'Apply' }).click();
  await page.getByText('Reconfiguration done.').waitFor();
  assert.match(await area.inputValue(), /"max_body_size": 123456/);

  await page.goto(`${origin}/#/history`);
  await page.getByText('1 change').first().waitFor();
  await page.getByText('1 change').first().click();
  await page.getByText('{"http":{"max_body_size":123456}}').first().waitFor();
  await inspect(page, 'marks-desktop');

  // By route, from its row in the table.
  await page.getByRole('combobox', { name: 'Time' }).selectOption('900');
  await page.getByRole('button', { name: 'routes/0' }).click();
  await page.getByText('All routes').waitFor();
  await page.waitForFunction(() => [...document.querySelectorAll('[role=img]')].some((chart) => /^Response time.*last \d/.test(chart.ariaLabel)));
  assert.equal(await page.getByText('PHP processes').count(), 0);
  await inspect(page, 'route-desktop');

  await page.goto(`${origin}/#/now`);
  const server = page.getByRole('row', { name: '127.0.0.1:9' });
  await server.getByRole('button', { name: 'Drain' }).click();
  await server.getByRole('button', { name: 'Drain now' }).click();
  await server.getByText('drained').waitFor();
  await server.getByRole('button', { name: 'Use again' }).click();
  await server.getByRole('button', { name: 'Use again' }).click();
  await server.getByText('up', { exact: true }).waitFor();

  await page.goto(`${origin}/#/application/blog`);
  await page.getByRole('button', { name: 'Restart…' }).click();
  await page.getByRole('button', { name: 'Restart now' }).click();
  await page.getByText('No request was lost.').waitFor();
  await page.getByRole('button', { name: 'Drain…' }).click();
  await page.getByRole('button', { name: 'Drain now' }).click();
  await page.getByText('drained').first().waitFor();
  await inspect(page, 'drained-desktop');
  await page.getByRole('button', { name: 'Use again…' }).click();
  await page.getByRole('button', { name: 'Use again now' }).click();
  await page.getByRole('button', { name: 'Restart…' }).waitFor();

  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Token or URL').fill('0'.repeat(64));
  await page.getByRole('button', { name: 'Open' }).click();
  await page.getByText('not the token').waitFor();
  await inspect(page, 'login-desktop');
  await page.getByLabel('Token or URL').fill(url);
  await page.getByRole('button', { name: 'Open' }).click();
  await page.getByRole('button', { name: 'Log out' }).waitFor();
}

/** A request may end before its stack is read: the next one has it. */
async function openStack(page) {
  const expected = page.locator('.stack').getByText('wait_for_the_report');
  for (let turn = 0; turn < 10; turn++) {
    await page.getByRole('row', { name: '/report?wait=1' }).first().getByRole('button', { name: 'Stack' }).click();
    if (await expected.waitFor({ timeout: 2000 }).then(() => true, () => false)) return;
  }
  assert.fail('no stack of a running request');
}

/** Without a mouse. */
async function keyboard() {
  const page = await open(SIZES.desktop);
  await page.getByRole('link', { name: 'History' }).waitFor();
  await page.keyboard.press('Tab');
  assert.equal(await focused(page), 'To the content');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
  await page.getByRole('link', { name: 'Slow requests' }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Slow requests' }).waitFor();
  await page.goto(`${origin}/#/slow/shop`);
  await page.locator('.slow summary').first().focus();
  await page.keyboard.press('Enter');
  await page.locator('.stack').first().waitFor();
  await page.goto(`${origin}/#/now`);
  await page.getByRole('button', { name: 'Stack' }).first().focus();
  await page.keyboard.press('Enter');
  await page.locator('tr.below').first().waitFor();
  const theme = page.getByTitle('Colours');
  await theme.focus();
  for (const expected of ['light', 'dark', 'auto']) {
    await page.keyboard.press('Enter');
    await page.waitForFunction((expected) => document.documentElement.dataset.theme === expected, expected);
  }
}

/** Names, URIs and log lines of strangers are text. */
async function hostile() {
  for (const [size, options] of Object.entries(SIZES)) {
    const page = await open(options);
    for (const [hash, ready] of [['now', '<img src=x onerror=alert(1)>'], [`application/${encodeURIComponent('<script>alert(1)</script>')}`, 'Workers'],
      ['slow', 'javascript:alert(1)'], ['history', 'What happened'], ['certificates', '<b>name</b>']]) {
      await page.goto(`${origin}/#/${hash}`);
      await page.getByText(ready).first().waitFor();
      if (hash === 'slow') await page.locator('.slow summary').first().click();
      await inspect(page, `hostile-${hash.split('/')[0]}-${size}`);
      assert.equal(await page.locator('main :is(script, img, b b, iframe)').count(), 0, hash);
      assert.ok(!(await page.locator('main').innerText()).match(/[\u0000-\u0008\u001b\u202e]/), `${hash}: control characters`);
    }
    await page.context().close();
  }
}

/** 200 applications. */
async function many() {
  for (const size of ['desktop', 'phone']) {
    const page = await open(SIZES[size]);
    await page.getByText('application-199').first().waitFor();
    const links = page.locator('a[href^="#/application/application-"]');
    assert.equal(await links.count(), 200);
    await page.getByLabel('Name contains').fill('N-19');
    assert.equal(await links.count(), 11);
    await page.getByLabel('Name contains').fill('');
    await page.getByLabel('Sorted by').selectOption('processes');
    assert.equal(await links.count(), 200);
    await inspect(page, `many-${size}`, false);
    const start = Date.now();
    await page.goto(`${origin}/#/history`);
    await page.getByText('What happened').waitFor();
    assert.ok(Date.now() - start < 5000);
    await page.context().close();
  }
}

/** howdah does not answer, and answers again; then the dashboard itself ends. The test writes what to do to our input. */
async function gone() {
  const page = await open(SIZES.desktop, [/status of (401|500|502)/, /ERR_CONNECTION/]);
  const lines = process.stdin[Symbol.asyncIterator]();
  const next = async (report) => {
    process.stdout.write(`${report}\n`);
    await lines.next();
  };
  await page.getByText('application-0').first().waitFor();
  await next('reachable');
  await page.getByText('howdah does not answer').waitFor();
  await page.getByText('Failed to get status').waitFor();
  await inspect(page, 'router-desktop');
  await next('router');
  await page.getByText('no howdah listens on').waitFor();
  await inspect(page, 'gone-desktop');
  await next('gone');
  await page.getByText('application-0').first().waitFor();
  assert.equal(await page.getByText('howdah does not answer').count(), 0);
  await next('back');
  await page.getByText('The dashboard does not answer').waitFor();
  await inspect(page, 'ended-desktop');
}

/** A browser that opens the URL with its token. `expected` are messages on the console that are no error. */
async function open(options, expected = [/status of (400|404|401)/], prepare = async () => {}) {
  const context = await browser.newContext({ ...options, reducedMotion: 'reduce' });
  const page = await context.newPage();
  page.setDefaultTimeout(20_000);
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type()) && !expected.some((known) => known.test(message.text()))) problems.push(message.text());
  });
  page.on('pageerror', (error) => problems.push(error.stack));
  page.on('dialog', (dialog) => {
    problems.push(`a dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(`${origin}/`)) problems.push(`a request to ${request.url()}`);
  });
  await prepare(page);
  await page.goto(url);
  await page.getByRole('heading').first().waitFor();
  assert.equal(new URL(page.url()).hash, '#/now', 'the token is gone from the address bar');
  return page;
}

/** Nothing is wider than the window, axe-core finds nothing, and a picture is taken. */
async function inspect(page, name, withAxe = true) {
  await page.evaluate(() => document.activeElement?.blur());
  await page.screenshot({ path: `${folder}/${name}.png` });
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
  if (overflow > 0) problems.push(`${name}: ${overflow} pixels wider than the window`);
  if (!withAxe) return;
  // Not as a script element: the policy of the page forbids it.
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }));
  for (const { id, nodes: all } of violations) {
    // The width of a bar of a flame graph is what it shows (WCAG 2.5.8: essential).
    const nodes = all.filter((node) => id !== 'target-size' || !node.html.includes('class="frame '));
    if (nodes.length === 0) continue;
    const where = nodes.slice(0, 3).map((node) => `${node.html.slice(0, 150)} (${node.any[0]?.message ?? ''})`);
    problems.push(`${name}: ${id}: ${where.join(' | ')}`);
  }
}

async function focused(page) {
  return page.evaluate(() => document.activeElement.textContent);
}
