<?php

use App\Note;
use App\Visit;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Cache;
use Illuminate\Support\Facades\Route;

Route::get('/notes', fn () => Note::orderBy('id')->paginate(2));
Route::put('/notes/{note}', fn (Request $request, Note $note) => tap($note)->update($request->only('title', 'text')));
Route::delete('/notes/{note}', fn (Note $note) => response()->noContent($note->delete() ? 204 : 500));
Route::get('/environment', fn (Request $request) => [
    'env' => config('app.env'), 'debug' => config('app.debug'), 'sapi' => PHP_SAPI, 'url' => $request->fullUrl(),
    'ip' => $request->ip(), 'secure' => $request->secure(), 'bearer' => $request->bearerToken(),
]);
Route::get('/visit', function () {
    static $requests = 0;
    return ['pid' => getmypid(), 'requests' => ++$requests, 'calls' => ++app(Visit::class)->calls];
});
Route::post('/hits', fn () => ['hits' => Cache::increment('hits')]);
