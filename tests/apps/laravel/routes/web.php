<?php

use App\Note;
use Illuminate\Http\Request;
use Illuminate\Support\Facades\Route;
use Illuminate\Support\Facades\Storage;

Route::get('/', fn () => view('notes', ['notes' => Note::orderBy('id')->get()]))->name('notes');

Route::get('/notes/{note}', fn (Note $note) => view('note', ['note' => $note]))->name('note');

Route::post('/notes', function (Request $request) {
    $fields = $request->validate(['title' => 'required|max:40', 'text' => 'required', 'file' => 'file|max:20480']);
    $attachment = $request->file('file')?->store('attachments');
    $note = Note::create(['attachment' => $attachment] + $fields);
    return redirect()->route('note', $note)->with('status', 'Saved.');
});

Route::get('/notes/{note}/attachment', fn (Note $note) => Storage::download($note->attachment, 'attachment.bin'));

Route::get('/count', function (Request $request) {
    $request->session()->put('count', $request->session()->get('count', 0) + 1);
    return ['count' => $request->session()->get('count')];
});

Route::get('/stream', fn () => response()->stream(function (): void {
    for ($line = 0; $line < 1000; $line++) {
        echo "line $line\n";
        flush();
    }
}, 200, ['Content-Type' => 'text/plain', 'X-Accel-Buffering' => 'no']));

Route::get('/exit', function (Request $request): never {
    $request->session()->put('count', 1000);
    exit('left');
});

Route::get('/broken', fn () => throw new RuntimeException('as ordered'));
