@extends('layout')
@section('title', $note->title)
@section('content')
<article>{{ $note->text }}</article>
@endsection
