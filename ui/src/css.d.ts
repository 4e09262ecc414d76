// esbuild writes imported style sheets to app.css.
declare module '*.css';
