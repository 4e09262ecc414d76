@extends('layout')
@section('title', 'Notes')
@section('content')
<ul>@foreach ($notes as $note)<li><a href="{{ route('note', $note) }}">{{ $note->title }}</a></li>@endforeach</ul>
@if ($errors->any())<p class="errors">{{ implode(' ', $errors->all()) }}</p>@endif
<form id="new" method="post" action="/notes" enctype="multipart/form-data">
@csrf
<input name="title" value="{{ old('title') }}"><textarea name="text">{{ old('text') }}</textarea><input type="file" name="file">
</form>
@endsection
